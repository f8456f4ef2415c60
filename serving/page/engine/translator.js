// A translator: text to texts, their scores, and where it looked; and what was begun, completed.

import { Covered, NextWord, Prefix, logSumExp } from "./prefix.js";
import { search } from "./search.js";
import { Spelling } from "./spelling.js";
import { tensor } from "./tensors.js";
import { makeTokenizer, said } from "./tokenizers.js";

const END = 3; // the last of the special tokens
const AFTER_PREFIX = 10; // tokens that a long prefix leaves room for
const MORE = 2; // words searched for each one wanted: several cuts of one word are one

// What has no UTF-8 form, half of a pair, becomes "?".
const written = (text) => text.replace(/\p{Surrogate}/gu, "?");

// Without ASCII's spaces around: others, such as one that does not break, are words.
const stripped = (text) => text.replace(/^[ \t\n\v\f\r]+|[ \t\n\v\f\r]+$/g, "");

export class Translator {
  // `model` as `readModel` gives it.
  constructor(model) {
    this.model = model;
    [this.source, this.target] = [model.source, model.target].map(makeTokenizer);
    this.spelling = new Spelling(this.target);
  }

  // Translate a text; `settings` are those of the model unless they are given. Returns {tokens,
  // truncated, words, word_probabilities, hypotheses}: words are those of the first hypothesis, and
  // each is {text, score, tokens, weights (T, S)}.
  search(text, settings = {}) {
    const asked = this.asked(settings);
    const { ids, truncated } = this.read(text);
    const nothing = { text: "", score: 0, tokens: [], weights: [] };
    const found = ids.length ? this.find(ids, asked) : [];
    return {
      tokens: ids.map((id) => this.source.token(id)),
      truncated,
      ...this.spelling.words(found[0]?.ids ?? [], found[0]?.logProbs),
      hypotheses: ids.length ? found.map((one) => said(this.target, one)) : new Array(asked.results).fill(nothing),
    };
  }

  // The best translation that begins with a prefix, as it was typed: {text, score, truncated, words,
  // word_probabilities}. A prefix may end within a word; a space at its end says that the word is
  // complete. Throws an error of one line for a prefix that no tokens spell.
  complete(text, prefix) {
    const { ids, truncated } = this.read(text);
    const { typed, normal } = this.typed(prefix);
    const forced = new Prefix(this.spelling, normal);
    const [best] = ids.length ? this.find(ids, { ...this.asked(), results: 1 }, forced) : [];
    return {
      text: this.spelling.compose(typed + (best ? this.text(best).slice(normal.length) : "")),
      score: best?.score ?? 0,
      truncated,
      ...this.spelling.words(best?.ids ?? [], best?.logProbs),
    };
  }

  // The most probable next words after a prefix, each {word, probability, translation, score}. A
  // prefix that ends in a word is followed by all of the words that begin so.
  alternatives(text, prefix) {
    const { ids } = this.read(text);
    const { typed, normal } = this.typed(prefix);
    const start = this.spelling.begunWord(normal);
    const head = typed.slice(0, Math.max(0, typed.length - normal.length + start));
    return this.next(ids, normal, start).map(({ raw, probability }) => {
      const forced = new Prefix(this.spelling, normal.slice(0, start) + raw, true);
      const [best] = this.find(ids, { ...this.asked(), results: 1 }, forced);
      const translation = this.spelling.compose(head + this.text(best).slice(start));
      return { word: this.spelling.compose(stripped(raw)), probability, translation, score: best.score };
    });
  }

  // The next words {raw, probability}, the most probable first; `raw` has what is in front of it.
  next(ids, normal, start) {
    const { width, results } = this.asked();
    const covers = new Covered(this.spelling, normal);
    if (!ids.length) return [];
    const covered = this.find(ids, { width, results: width, penalty: 0 }, covers);
    const total = logSumExp(covered.map(({ score }) => score));
    const many = MORE * results;
    const wide = { width: Math.max(many, width), results: many, penalty: 0 };
    const words = new Map();
    for (const one of this.find(ids, wide, new NextWord(this.spelling, normal))) {
      const raw = this.text(one).slice(start);
      // One that did not end was cut where the search ended.
      if (raw && one.ids.at(-1) === END) words.set(raw, (words.get(raw) ?? 0) + Math.exp(one.score - total));
    }
    return [...words].map(([raw, sum]) => ({ raw, probability: Math.min(sum, 1) }))
      .sort((a, b) => b.probability - a.probability).slice(0, results);
  }

  find(ids, asked, forced = null) {
    const source = { ids: tensor(Int32Array.from(ids), [1, ids.length]) };
    const size = forced ? new TextEncoder().encode(forced.prefix).length : 0;
    return search(this.model, source, Math.max(2 * ids.length + 10, size + AFTER_PREFIX), asked, forced);
  }

  asked(settings = {}) {
    const { beam_width, num_results, length_penalty } = { ...this.model.settings, ...settings };
    return { width: beam_width, results: Math.min(num_results, beam_width), penalty: length_penalty };
  }

  read(text) {
    const read = this.source.encode(written(text));
    const ids = read.slice(0, this.model.settings.max_source_length);
    return { ids, truncated: read.length > ids.length };
  }

  // A prefix as it is shown, and as tokens spell it.
  typed(prefix) {
    const valid = written(prefix);
    const normal = this.spelling.normalize(valid);
    return { typed: this.spelling.kind === "letters" ? normal : valid, normal };
  }

  // What a hypothesis says, as prefixes are spelled.
  text({ ids }) {
    return this.spelling.decompose(this.target.decode(ids.filter((id) => id > END)));
  }
}
