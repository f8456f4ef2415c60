// Windows of words longer than nearly all words of training: `training.decode.windows`.

import { END_ID } from "./rules.js";

// Return the windows {ids, start, first, end} of a word's ids, by the model's `spelling`; a short word
// is one window. A phone is kept if it attends most to a letter from `first` up to `end`.
export function cut(ids, spelling) {
  const size = ids.length;
  if (!spelling || size <= spelling.whole) return size ? [{ ids, start: 0, first: 0, end: size }] : [];
  const { window, context } = spelling;
  const firsts = [0];
  for (let at = window - context; at < size - context; at += window - 2 * context) firsts.push(at);
  return firsts.map((first, number) => {
    const [start, end] = [Math.max(0, first - context), firsts[number + 1] ?? size];
    return { ids: ids.slice(start, end + context), start, first, end };
  });
}

// Return the hypotheses of a word, the best first. One joins a hypothesis of each window; its score is the
// mean of theirs.
export function join(windows, found, results) {
  let best = [{ total: 0, path: [] }];
  windows.forEach((window, number) => {
    const own = different(found[number].map((one) => kept(one, window, windows.at(-1).end)));
    const sums = best.flatMap(({ total, path }) => own.map((one) => ({ total: total + one.score, path: [...path, one] })));
    best = sums.sort((a, b) => b.total - a.total).slice(0, results);
  });
  return different(best.map(({ total, path }) => ({
    ids: path.flatMap(({ ids }) => ids),
    logProbs: path.flatMap(({ logProbs }) => logProbs),
    weights: path.flatMap(({ weights }) => weights),
    score: total / windows.length,
  })));
}

// Return a window's hypothesis with the phones of its core alone; weights are of all `size` letters.
function kept({ ids, logProbs, weights, score }, { start, first, end }, size) {
  const steps = [...ids.keys()].filter((step) => {
    const place = start + weights[step].indexOf(Math.max(...weights[step]));
    return ids[step] === END_ID ? end === size : place >= first && place < end;
  });
  const rows = steps.map((step) => {
    const row = new Float32Array(size);
    row.set(weights[step], start);
    return row;
  });
  return { ids: steps.map((step) => ids[step]), logProbs: steps.map((step) => logProbs[step]), weights: rows, score };
}

// Return the hypotheses, of those with the same ids the first.
function different(hypotheses) {
  const seen = new Set();
  return hypotheses.filter(({ ids }) => !seen.has(ids.join()) && seen.add(ids.join()));
}
