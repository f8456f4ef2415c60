// Tokens joined to the words of a text, with their probabilities as in `training.decode.words`.

import { ALPHABETS, END_ID, GOES_ON, LETTER, MARK } from "./rules.js";

const INSIDE = new RegExp(`^${GOES_ON.replace("LETTER", LETTER)}`, "u"); // of a word
const SURFACES = { symbols: (token) => ` ${token}`, characters: (token) => token, letters: (token) => token };

// Return a function from a text's ids and the log-probability of each to {words,
// word_probabilities}: each word has the space in front of it, and the probability of its least probable
// token. `tokenizer` is the target's.
export function wordsBy(tokenizer) {
  const surface = SURFACES[tokenizer.kind] ?? ((token) => token.replaceAll(MARK, " "));
  return (ids, logProbs) => {
    const words = [];
    let text = "";
    ids.forEach((id, place) => {
      if (id <= END_ID) return; // no text shows it
      const afterSpace = text === " "; // a lone one is the next word's
      text = surface(tokenizer.token(id));
      if (!words.length || !(afterSpace || INSIDE.test(text))) words.push({ text: "", least: 0 });
      words.at(-1).text += text;
      words.at(-1).least = Math.min(words.at(-1).least, logProbs[place]);
    });
    const spaced = !ALPHABETS.includes(tokenizer.kind);
    if (words.length && spaced) words[0].text = words[0].text.replace(/^ /, ""); // is not shown
    return {
      words: words.map(({ text }) => (tokenizer.kind === "letters" ? text.normalize("NFC") : text)),
      word_probabilities: words.map(({ least }) => Math.exp(least)),
    };
  };
}
