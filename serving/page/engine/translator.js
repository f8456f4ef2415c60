// A translator: text to texts, their scores, and where it looked.

import { search } from "./search.js";
import { tensor } from "./tensors.js";
import { makeTokenizer, said } from "./tokenizers.js";

export class Translator {
  // `model` as `readModel` gives it.
  constructor(model) {
    this.model = model;
    [this.source, this.target] = [model.source, model.target].map(makeTokenizer);
  }

  // Translate a text; `settings` are those of the model unless they are given. Returns {tokens,
  // truncated, hypotheses}, of which each is {text, score, tokens, weights (T, S)}.
  search(text, settings = {}) {
    const { beam_width, num_results, length_penalty, max_source_length } = { ...this.model.settings, ...settings };
    // What has no UTF-8 form, half of a pair, becomes "?".
    const read = this.source.encode(text.replace(/\p{Surrogate}/gu, "?"));
    const ids = read.slice(0, max_source_length);
    const nothing = { text: "", score: 0, tokens: [], weights: [] };
    const results = Math.min(num_results, beam_width);
    const asked = { width: beam_width, results, penalty: length_penalty };
    const hypotheses = ids.length
      ? search(this.model, { ids: tensor(Int32Array.from(ids), [1, ids.length]) }, 2 * ids.length + 10, asked)
        .map((found) => said(this.target, found))
      : new Array(results).fill(nothing);
    return { tokens: ids.map((id) => this.source.token(id)), truncated: read.length > ids.length, hypotheses };
  }
}
