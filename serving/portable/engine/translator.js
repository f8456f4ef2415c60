// A translator: text to texts, their scores, and where it looked.

import { singleSpaces } from "./clean.js";
import { TOKEN_BYTES } from "./rules.js";
import { search } from "./search.js";
import { tensor } from "./tensors.js";
import { described, makeTokenizer } from "./tokenizers.js";
import { cut, join } from "./windows.js";
import { wordsBy } from "./words.js";

// Return the start of a text, with single spaces, that `tokens` tokens can cover at most, and whether that
// is the whole text. A lone surrogate becomes "?".
function written(text, tokens) {
  const bytes = new TextEncoder().encode(singleSpaces(text).replace(/\p{Surrogate}/gu, "?"));
  const most = tokens * TOKEN_BYTES;
  const start = new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes.subarray(0, most), { stream: true });
  return { start, whole: bytes.length <= most };
}

// The most tokens of an answer to a source of `length` tokens; see `training.data.rules.most_tokens`.
function mostTokens(length, [factor, more]) {
  const hundredths = Math.round(100 * factor);
  return Math.floor(hundredths / 100) * length + Math.floor((hundredths % 100) * length / 100) + more;
}

export class Translator {
  // `model` as `readModel` gives it.
  constructor(model) {
    this.model = model;
    [this.source, this.target] = [model.source, model.target].map(makeTokenizer);
    this.words = wordsBy(this.target);
  }

  // Translate a text; `settings` override the model's settings. Returns {tokens, truncated, unknown,
  // words, word_probabilities, hypotheses}. The words are the first hypothesis's; a hypothesis is
  // {text, score, tokens, token_probabilities, weights (T, S)}.
  search(text, settings = {}) {
    const asked = { target_bound: [2, 10], ...this.model.settings, ...settings };
    const { beam_width, num_results, length_penalty, max_source_length, target_bound } = asked;
    const results = Math.min(num_results, beam_width);
    const { start, whole } = written(text, max_source_length);
    const read = this.source.encode(start);
    const ids = read.slice(0, max_source_length);
    const options = { width: beam_width, results, penalty: length_penalty };
    const windows = cut(ids, this.model.spelling);
    const found = windows.map(({ ids: own }) => search(
      this.model, { ids: tensor(Int32Array.from(own), [1, own.length]) }, mostTokens(own.length, target_bound), options));
    const best = found.length < 2 ? found[0] ?? [] : join(windows, found, results);
    const nothing = { text: "", score: 0, tokens: [], weights: [] };
    return {
      tokens: ids.map((id) => this.source.token(id)),
      truncated: !whole || read.length > ids.length,
      unknown: this.source.unseen?.(start) ?? "",
      ...this.words(best[0]?.ids ?? [], best[0]?.logProbs),
      hypotheses: ids.length ? best.map((hypothesis) => described(this.target, hypothesis)) : new Array(results).fill(nothing),
    };
  }
}
