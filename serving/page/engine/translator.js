// A translator: text to texts, their scores, and where it looked.

import { search } from "./search.js";
import { SentencePiece } from "./sentencepiece.js";
import { Vocabulary } from "./vocabulary.js";

const END = 3;

export class Translator {
  // `model` as `readModel` gives it.
  constructor(model) {
    this.model = model;
    [this.source, this.target] = [model.source, model.target].map((about) => (
      about.kind === "sentencepiece" ? new SentencePiece(about) : new Vocabulary(about)));
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
      ? search(this.model, ids, asked).map((found) => this.written(found))
      : new Array(results).fill(nothing);
    return { tokens: ids.map((id) => this.source.token(id)), truncated: read.length > ids.length, hypotheses };
  }

  written({ ids, score, weights }) {
    const said = ids.filter((id) => id !== END && id !== 0);
    return {
      text: this.target.decode(said.filter((id) => id > END)),
      score,
      tokens: said.map((id) => this.target.token(id)),
      weights: weights.slice(0, said.length).map((row) => Array.from(row)),
    };
  }
}
