// Tokenizers of all kinds, and what a search found as text.

import { SentencePiece } from "./sentencepiece.js";
import { Vocabulary } from "./vocabulary.js";

const [PAD, END] = [0, 3];

export function makeTokenizer(about) {
  return about.kind === "sentencepiece" ? new SentencePiece(about) : new Vocabulary(about);
}

// Return a hypothesis, {ids, score, weights}, as {text, score, tokens, weights (T, S)}.
export function said(tokenizer, { ids, score, weights }) {
  const own = ids.filter((id) => id !== END && id !== PAD);
  return {
    text: tokenizer.decode(own.filter((id) => id > END)),
    score,
    tokens: own.map((id) => tokenizer.token(id)),
    weights: weights.slice(0, own.length).map((row) => Array.from(row)),
  };
}
