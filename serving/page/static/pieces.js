// Subwords joined to the words that people read, and their attention weights with them.
//
// Tokens without SentencePiece's mark are words of their own; so are punctuation and what is written
// in Chinese, Japanese or Thai characters, where no space tells words apart.

import { MARK, UNK_TOKEN } from "./rules.js";

// Scripts that put no spaces between words, their punctuation, and the wide forms of Latin letters.
const UNSPACED = new RegExp("[\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}\\p{Script=Bopomofo}\\p{Script=Yi}"
  + "\\u0e00-\\u0eff\\u3000-\\u303f\\uff01-\\uff60]", "u");
// An unknown token may stand for a whole word, its mark with it.
const spelled = (token) => token !== UNK_TOKEN && /[\p{L}\p{N}]/u.test(token) && !UNSPACED.test(token);

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

// Return an alignment of tokens, {source, target, weights}, as one of words. A source word has the sum
// of its tokens' weights, a target word the mean over its tokens: what it looks at still sums to 1.
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
