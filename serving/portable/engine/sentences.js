// Texts cut into sentences: `serving.api.results`.

// As Python's \s.
const SPACE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
// A full stop ends a sentence before white space, a Chinese or Japanese one anywhere. A run of white
// space is looked at from its beginning only, not again from each of its places.
const BOUNDARY = new RegExp(
  `((?<=[.!?…])[${SPACE}]+|(?<=[.!?…]["'”’»)\\]])[${SPACE}]+`
  + `|(?<=[。！？])(?![。！？”’」』）])[${SPACE}]*|(?<=[。！？][”’」』）])[${SPACE}]*|(?<![${SPACE}])[${SPACE}]*\\n[${SPACE}]*)`, "u");
const ENDS = new RegExp(`^[${SPACE}]+|(?<![${SPACE}])[${SPACE}]+$`, "gu");

// Return [sentence, white space after it] of each, in order.
export function splitSentences(text) {
  const parts = text.replace(ENDS, "").split(BOUNDARY);
  return parts.flatMap((part, i) => (i % 2 || !part ? [] : [[part, parts[i + 1] ?? ""]]));
}
