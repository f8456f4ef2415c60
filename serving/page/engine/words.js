// Tokens joined to the words that people read: with their weights as in `serving.page.words`, with their
// probabilities as in `training.decode.words`.

const MARK = "▁"; // SentencePiece's, in front of each piece that begins a word
// Scripts that put no spaces between words, their punctuation, and the wide forms of Latin letters.
const UNSPACED = new RegExp("[\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}\\p{Script=Bopomofo}\\p{Script=Yi}"
  + "\\u0e00-\\u0eff\\u3000-\\u303f\\uff01-\\uff60]", "u");
const UNKNOWN = "<unk>"; // may stand for a whole word, its mark with it
const spelled = (token) => token !== UNKNOWN && /[\p{L}\p{N}]/u.test(token) && !UNSPACED.test(token);

// Return the positions of the tokens of each word, in order.
export function groups(tokens) {
  if (!tokens.some((token) => token.startsWith(MARK))) return tokens.map((_, position) => [position]);
  const words = [];
  tokens.forEach((token, position) => {
    const before = tokens[position - 1] ?? "";
    const inside = words.length && !token.startsWith(MARK) && before !== MARK;
    if (before === MARK || (inside && spelled(token) && spelled(before))) words.at(-1).push(position);
    else words.push([position]);
  });
  return words;
}

// Return {source, target, weights} between words. A source word has the sum of its tokens' weights,
// a target word the mean over its tokens.
export function join(source, target, weights) {
  const [columns, rows] = [groups(source), groups(target)];
  const sum = (row, column) => column.reduce((total, s) => total + row.reduce((part, t) => part + weights[t][s], 0), 0);
  return {
    source: texts(source, columns),
    target: texts(target, rows),
    weights: rows.map((row) => columns.map((column) => sum(row, column) / row.length)),
  };
}

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
    ids.forEach((id, place) => {
      if (id <= END) return;
      const text = surface(tokenizer.token(id));
      if (!words.length || !GOES_ON.test(text)) words.push({ text: "", least: 0 });
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

const texts = (tokens, words) => words.map((word) => word.map((p) => tokens[p]).join("").replaceAll(MARK, " ").trim());
