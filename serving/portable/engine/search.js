// Greedy and beam search over a decoder's steps: `serving.portable.write._search`, of one sentence.

import { END_ID, START_ID } from "./rules.js";
import { around, tensor } from "./tensors.js";

// What sums of log-probabilities are divided by: Wu et al. 2016 (arXiv 1609.08144), eq. 14.
export function lengthNorm(length, penalty) {
  return Math.pow((length + 5) / 6, penalty);
}

// `model` has the graphs encoder and step, and which of the encoder's outputs every step takes
// (`memory`) and which change (`state`); `source` is what the encoder reads. `limit` is the most
// tokens of a hypothesis. Returns `results` hypotheses, fewer where no more are possible, the best
// first, of {ids, score, logProbs, weights}: ids end with END unless they were cut, with a
// log-probability and a row of S weights for each.
export function search(model, source, limit, { width, results, penalty }) {
  const norm = (length) => lengthNorm(length, penalty);
  const made = model.encoder.ask(source);
  const memory = pick(made, model.memory);
  let state = pick(made, model.state);
  const done = [];
  let beam = [{ last: START_ID, total: 0, length: 0, finished: false, before: null }];
  for (let turn = 0; turn < limit; turn++) {
    const tokens = tensor(Int32Array.from(beam, ({ last }) => last), [beam.length]);
    const { log_probs, weights, ...next } = model.step.ask({ tokens, ...memory, ...state });
    const candidates = beam.flatMap((each, row) => (each.finished ? [{ ...each, row, frozen: true }] : continued(each, row)));
    function continued(hypothesis, row) {
      const [own, attended] = [log_probs, weights].map((x) => rowOf(x, row));
      return greatest(own, width).map((token) => {
        const logProb = own[token];
        const total = Math.fround(hypothesis.total + logProb);
        const length = hypothesis.length + 1;
        const finished = token === END_ID || length >= limit;
        return { last: token, logProb, total, length, finished, before: hypothesis, attended, row, score: total / norm(length) };
      });
    }
    beam = candidates.map((hypothesis, place) => ({ hypothesis, place }))
      .sort((a, b) => b.hypothesis.score - a.hypothesis.score || a.place - b.place)
      .slice(0, width).map(({ hypothesis }) => hypothesis);
    done.push(...beam.filter(({ finished, frozen }) => finished && !frozen));
    // Stop if no open hypothesis can be a result, even if its further tokens have probability 1.
    const ended = beam.filter(({ finished }) => finished);
    const reach = Math.max(...beam.map(({ finished, total }) => (finished ? -Infinity : total / norm(limit))));
    if (ended.length === beam.length || ended[results - 1]?.score >= reach) break;
    state = Object.fromEntries(model.state.map((name) => [name, gathered(next[`next_${name}`], beam)]));
  }
  // The best of all hypotheses that have ended; at equal scores, the earlier one comes first.
  return done.sort((a, b) => b.score - a.score).slice(0, results).map(followed);
}

const pick = (values, names) => Object.fromEntries(names.map((name) => [name, values[name]]));

function rowOf(x, row) {
  const [, , size] = around(x.dims, 0);
  return x.data.subarray(row * size, (row + 1) * size);
}

function gathered(x, beam) {
  const [, , size] = around(x.dims, 0);
  const data = new x.data.constructor(beam.length * size);
  beam.forEach(({ row }, to) => data.set(rowOf(x, row), to * size));
  return tensor(data, [beam.length, ...x.dims.slice(1)]);
}

// Return the indices of the greatest numbers, greatest first, without -Infinity.
function greatest(row, many) {
  const best = [];
  for (let i = 0; i < row.length; i++) {
    if (row[i] === -Infinity || best.length === many && !(row[i] > row[best[many - 1]])) continue;
    let at = Math.min(best.length, many - 1);
    while (at > 0 && row[i] > row[best[at - 1]]) {
      best[at] = best[at - 1];
      at--;
    }
    best[at] = i;
  }
  return best;
}

function followed(hypothesis) {
  const [ids, logProbs, weights] = [[], [], []];
  for (let step = hypothesis; step.before; step = step.before) {
    ids.push(step.last);
    logProbs.push(step.logProb);
    weights.push(step.attended);
  }
  return { ids: ids.reverse(), score: hypothesis.score, logProbs: logProbs.reverse(), weights: weights.reverse() };
}
