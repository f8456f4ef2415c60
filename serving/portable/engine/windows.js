// Words that are longer than nearly all that training saw, by windows: `training.decode.windows`.

import { END_ID } from "./rules.js";

// The windows of a word's ids, by the model's `spelling`, or one: each of {ids, start, first, end},
// of which phones are kept that look at letters from `first` to `end`.
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

// The hypotheses of a word, of those that `search` found for its windows: of the n-th of each.
export function join(windows, found, penalty) {
  const size = windows.at(-1).end;
  return Array.from({ length: Math.min(...found.map((each) => each.length)) }, (_, rank) => {
    const [ids, logProbs, weights] = [[], [], []];
    windows.forEach(({ start, first, end }, number) => {
      const said = found[number][rank];
      said.ids.forEach((id, step) => {
        const place = start + said.weights[step].indexOf(Math.max(...said.weights[step]));
        if (id === END_ID ? end < size : place < first || place >= end) return;
        ids.push(id);
        logProbs.push(said.logProbs[step]);
        const row = new Float32Array(size);
        row.set(said.weights[step], start);
        weights.push(row);
      });
    });
    const score = logProbs.reduce((sum, each) => sum + each, 0) / Math.pow((ids.length + 5) / 6, penalty);
    return { ids, score, logProbs, weights };
  });
}
