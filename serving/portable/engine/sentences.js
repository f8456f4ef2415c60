// Texts cut into sentences: `serving.api._results`.

import { BLANK, LINE_END, SENTENCE_END } from "./rules.js";

const [SENTENCES, LINES] = [SENTENCE_END, LINE_END].map((end) => new RegExp(`(${end})`, "u"));
const ENDS = new RegExp(`^${BLANK}+|(?<!${BLANK})${BLANK}+$`, "gu");

// Return [sentence, white space after it] of each, in order; or of each line if the model's `sentences`
// is false.
export function splitSentences(text, sentences = true) {
  const parts = text.replace(ENDS, "").split(sentences ? SENTENCES : LINES);
  return parts.flatMap((part, i) => (i % 2 || !part ? [] : [[part, parts[i + 1] ?? ""]]));
}
