// Joins translations of sentences to one text, as `serving.api._results.join_sentences` does.

import { FULL_WIDTH_END } from "./rules.js";

const ENDED = new RegExp(FULL_WIDTH_END, "u");

// Return the white space after each translation {text, gap}. `gap` is the white space after the
// source sentence; the target language may have none there.
export function gaps(sentences) {
  return sentences.map(({ text, gap }, place) => {
    if (place === sentences.length - 1) return "";
    if (gap.includes("\n")) return gap;
    return ENDED.test(text) ? "" : " ";
  });
}

export function joined(sentences) {
  const between = gaps(sentences);
  return sentences.map(({ text }, place) => text + between[place]).join("");
}
