// Tokenizers of all kinds, and what a search found as text.

import { END_ID, SHOWN } from "./rules.js";
import { SentencePiece } from "./sentencepiece.js";
import { Vocabulary } from "./vocabulary.js";

export function makeTokenizer(about) {
  return about.kind === "sentencepiece" ? new SentencePiece(about) : new Vocabulary(about);
}

// Return a hypothesis of `search` as {text, score, tokens, token_probabilities, weights (T, S)}.
export function described(tokenizer, { ids, score, logProbs, weights }) {
  const own = [...ids.keys()].filter((place) => SHOWN[ids[place]] !== "");
  return {
    text: tokenizer.decode(ids.filter((id) => id > END_ID)),
    score,
    tokens: own.map((place) => tokenizer.token(ids[place])),
    token_probabilities: own.map((place) => Math.exp(logProbs[place])),
    weights: weights.length ? own.map((place) => Array.from(weights[place])) : [],
  };
}
