// Texts as training reads them: `training.data.rules`.

import { WHITE } from "./rules.js";

const RUNS = new RegExp(WHITE, "gu");

// NFC, single spaces, no byte order marks inside.
export function clean(text) {
  return text.replaceAll("\ufeff", "").normalize("NFC").replace(RUNS, " ").replace(/^ | $/g, "");
}
