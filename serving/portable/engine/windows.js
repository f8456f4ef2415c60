// Windows of words longer than nearly all words of training: `training.decode.windows`.

import { END_ID } from "./rules.js";

// Return how many ids in front of a word are its tag, such as "[cy] ": `training.data.rules.tag_length`.
function tagLength(ids, tag) {
  const close = tag && ids[0] === tag.open ? ids.indexOf(tag.close) : -1;
  const size = close + 1 + (ids[close + 1] === tag?.space);
  return close > 0 && size <= tag.longest && size < ids.length ? size : 0;
}

// Return the windows {ids, tag, start, first, end} of a word's ids, by the model's `spelling`; a short word
// is one window. The first `tag` ids are the word's tag; letters are counted from the first one after it.
// A phone is kept if it attends most to a letter from `first` up to `end`. If it attends most to the tag,
// it counts for the letter `start`.
export function cut(ids, spelling) {
  const tag = tagLength(ids, spelling?.tag);
  const size = ids.length - tag;
  if (!spelling || size <= spelling.whole) {
    return ids.length ? [{ ids, tag: 0, start: 0, first: 0, end: ids.length }] : [];
  }
  const { window, context } = spelling;
  const firsts = [0];
  for (let at = window - context; at < size - context; at += window - 2 * context) firsts.push(at);
  return firsts.map((first, number) => {
    const [start, end] = [Math.max(0, first - context), firsts[number + 1] ?? size];
    const own = [...ids.slice(0, tag), ...ids.slice(tag + start, tag + end + context)];
    return { ids: own, tag, start, first, end };
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
function kept({ ids, logProbs, weights, score }, { tag, start, first, end }, size) {
  const steps = [...ids.keys()].filter((step) => {
    const place = start + Math.max(0, weights[step].indexOf(Math.max(...weights[step])) - tag);
    return ids[step] === END_ID ? end === size : place >= first && place < end;
  });
  const rows = steps.map((step) => {
    const row = new Float32Array(tag + size);
    row.set(weights[step].slice(tag), tag + start);
    row.set(weights[step].slice(0, tag));
    return row;
  });
  return { ids: steps.map((step) => ids[step]), logProbs: steps.map((step) => logProbs[step]), weights: rows, score };
}

// Return the hypotheses, of those with the same ids the first.
function different(hypotheses) {
  const seen = new Set();
  return hypotheses.filter(({ ids }) => !seen.has(ids.join()) && seen.add(ids.join()));
}
