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

// Return the hypotheses of a word: hypothesis n joins the n-th hypotheses of all windows.
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
