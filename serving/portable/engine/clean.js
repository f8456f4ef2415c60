// Texts as training reads them: `serving.portable.read.tokenizers`.

const WHITE = /[\t-\r\x1c-\x1f\x85\p{Z}]+/gu; // as Python's `str.split`

// NFC, single spaces, no byte order marks inside.
export function clean(text) {
  return text.replaceAll("\ufeff", "").normalize("NFC").replace(WHITE, " ").replace(/^ | $/g, "");
}
