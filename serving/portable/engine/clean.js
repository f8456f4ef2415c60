// Texts as training reads them: `training.data.rules`.

import { WHITE } from "./rules.js";

const RUNS = new RegExp(WHITE, "gu");

// Return a text in NFC, with single spaces and without byte order marks.
export function clean(text) {
  return singleSpaces(text).normalize("NFC");
}

// Return a text with single spaces and without byte order marks, before it is cut to a size.
export function singleSpaces(text) {
  return text.replaceAll("\ufeff", "").replace(RUNS, " ").replace(/^ | $/g, "");
}
