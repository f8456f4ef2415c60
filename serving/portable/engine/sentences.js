// Texts cut into sentences: `serving.api.results`.

import { BLANK, SENTENCE_END } from "./rules.js";

const BOUNDARY = new RegExp(SENTENCE_END, "u");
const ENDS = new RegExp(`^${BLANK}+|(?<!${BLANK})${BLANK}+$`, "gu");

// Return [sentence, white space after it] of each, in order.
export function splitSentences(text) {
  const parts = text.replace(ENDS, "").split(BOUNDARY);
  return parts.flatMap((part, i) => (i % 2 || !part ? [] : [[part, parts[i + 1] ?? ""]]));
}
