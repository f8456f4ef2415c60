// Sentences' translations as one text: `serving.api.results.join_sentences`.

import { FULL_WIDTH_END } from "./rules.js";

const ENDED = new RegExp(FULL_WIDTH_END, "u");

// What stands behind each sentence's translation, {text, gap}: `gap` is what stands behind the source,
// whose language may put spaces between sentences where the other has none.
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
