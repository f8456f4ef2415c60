// Capitals and whole letters, for tokenizers of single letters: `training.data.letters`.

import { WHOLE_LETTER } from "./rules.js";

const WHOLE = new RegExp(WHOLE_LETTER, "gu");
const SYLLABLE = /^[가-힣]$/u;

// Return a text whose capitals of several letters, and each Σ at a word's end, are small.
export function withSmall(text, cases, tokens) {
  for (const [capital, small] of cases) {
    if ([...capital].length > 1) text = text.replaceAll(capital, small);
  }
  return cases.has("Σ") && tokens.has("ς") ? text.replace(/(?<=[\p{L}\p{M}])Σ(?![\p{L}\p{M}])/gu, "ς") : text;
}

// Return the letters of a text in NFC, each with its marks.
export function lettersOf(text) {
  return text.match(WHOLE) ?? [];
}

// Return the letters of a text in NFC that training never saw, each once. Korean syllables are known by
// their parts if these are given.
export function unknownLetters(text, known, syllableParts) {
  const isKnown = (letter) => (syllableParts && SYLLABLE.test(letter)
    ? [...letter.normalize("NFD")].every((part) => syllableParts.has(part))
    : known.has(letter));
  return [...new Set(lettersOf(text))].filter((letter) => !isKnown(letter));
}
