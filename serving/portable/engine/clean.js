// Texts as training reads them: `training.data.rules`.

import { WHITE } from "./rules.js";

const RUNS = new RegExp(WHITE, "gu");

// Return a text in NFC, with single spaces and without byte order marks.
export function clean(text) {
  return text.replaceAll("\ufeff", "").normalize("NFC").replace(RUNS, " ").replace(/^ | $/g, "");
}
