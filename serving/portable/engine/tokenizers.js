// Tokenizers of all kinds, and what a search found as text.

import { SentencePiece } from "./sentencepiece.js";
import { Vocabulary } from "./vocabulary.js";

const [PAD, END] = [0, 3];

export function makeTokenizer(about) {
  return about.kind === "sentencepiece" ? new SentencePiece(about) : new Vocabulary(about);
}

// Return a hypothesis of `search` as {text, score, tokens, token_probabilities, weights (T, S)}.
export function described(tokenizer, { ids, score, logProbs, weights }) {
  const own = ids.filter((id) => id !== END && id !== PAD);
  return {
    text: tokenizer.decode(own.filter((id) => id > END)),
    score,
    tokens: own.map((id) => tokenizer.token(id)),
    token_probabilities: logProbs.slice(0, own.length).map(Math.exp),
    weights: weights.slice(0, own.length).map((row) => Array.from(row)),
  };
}
