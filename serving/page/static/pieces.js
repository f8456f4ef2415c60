// Joins subwords to words, and the attention weights of subwords to those of words.
//
// Without SentencePiece's mark, each token is a word. So are punctuation, and tokens in Chinese,
// Japanese or Thai characters, which have no spaces between words.

import { MARK, UNK_TOKEN } from "./rules.js";

// Scripts without spaces between words, their punctuation, and fullwidth Latin letters.
const UNSPACED = new RegExp("[\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}\\p{Script=Bopomofo}\\p{Script=Yi}"
  + "\\u0e00-\\u0eff\\u3000-\\u303f\\uff01-\\uff60]", "u");
// An unknown token may replace a whole word, including its mark.
const spelled = (token) => token !== UNK_TOKEN && /[\p{L}\p{N}]/u.test(token) && !UNSPACED.test(token);

// Return, for each word, the positions of its tokens, in order.
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

// Return an alignment of words for an alignment {source, target, weights} of tokens. The weights are
// summed over the tokens of a source word and averaged over the tokens of a target word, so that the
// weights of a target word still sum to 1.
export function join({ source, target, weights }) {
  const [columns, rows] = [groups(source), groups(target)];
  const sum = (row, column) => column.reduce((total, s) => total + row.reduce((part, t) => part + weights[t][s], 0), 0);
  return {
    source: texts(source, columns),
    target: texts(target, rows),
    weights: rows.map((row) => columns.map((column) => sum(row, column) / row.length)),
  };
}

const texts = (tokens, words) => words.map((word) => word.map((p) => tokens[p]).join("").replaceAll(MARK, " ").trim());
