// Tokens joined to the words of a text, with their probabilities as in `training.decode.words`.

const MARK = "▁"; // SentencePiece's, in front of each piece that begins a word
const END = 3; // the last of the special tokens, which no text shows
const CJK = "\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}";
const GOES_ON = new RegExp(`^(?:(?![${CJK}])[\\p{L}]|[\\p{N}\\p{M}]|['’-])`, "u"); // with a word
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
      if (id <= END) return;
      const afterSpace = text === " "; // a lone one is the next word's
      text = surface(tokenizer.token(id));
      if (!words.length || !(afterSpace || GOES_ON.test(text))) words.push({ text: "", least: 0 });
      words.at(-1).text += text;
      words.at(-1).least = Math.min(words.at(-1).least, logProbs[place]);
    });
    const spaced = !["characters", "letters"].includes(tokenizer.kind);
    if (words.length && spaced) words[0].text = words[0].text.replace(/^ /, ""); // is not shown
    return {
      words: words.map(({ text }) => (tokenizer.kind === "letters" ? text.normalize("NFC") : text)),
      word_probabilities: words.map(({ least }) => Math.exp(least)),
    };
  };
}
