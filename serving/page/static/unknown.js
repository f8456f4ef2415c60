// Finds how the user typed the words for which a model has no token.

import { INVISIBLE, UNK_TOKEN } from "./rules.js";

const UNKNOWN = new RegExp(`${UNK_TOKEN}|⁇`);
const NOT_SEEN = new RegExp(INVISIBLE, "u");
const LETTER = /[\p{L}\p{N}]/u;

// Return a letter for a message: an invisible one by its number.
export function visible(letter) {
  const number = letter.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
  return letter !== " " && NOT_SEEN.test(letter) ? `<U+${number}>` : letter;
}

// Return `words` of `text`, with each unknown word replaced by the text between its known neighbours.
// If a known word is not in the text, for instance because the tokenizer rewrites it, unknown words
// stay as they are.
export function typed(words, text) {
  if (!words.some((word) => UNKNOWN.test(word))) return words;
  return asLetters(words, text) ?? asWords(words, text);
}

// Return the words for a model of letters, whose words are single letters; "" for a space.
function asLetters(words, text) {
  const ways = [text, text.normalize("NFD")].map((each) => [...each].map((letter) => letter.trim()));
  return ways.find((letters) => letters.length === words.length
    && words.every((word, n) => UNKNOWN.test(word) || word === letters[n]));
}

function asWords(words, text) {
  const typed = [...words];
  let [end, unknown] = [0, []];
  const fill = (until) => {
    const parts = text.slice(end, until).trim().split(/\s+/);
    unknown.forEach((n, i) => {
      typed[n] = (n === unknown.at(-1) ? parts.slice(i).join(" ") : parts[i]) || words[n];
    });
    unknown = [];
  };
  for (let n = 0; n < words.length; n++) {
    if (UNKNOWN.test(words[n])) unknown.push(n);
    else if (words[n]) {
      const start = place(text, words[n], end + Number(unknown.length > 0));
      if (start < 0) return words;
      fill(start);
      end = start + words[n].length;
    }
  }
  fill(text.length);
  return typed;
}

// Return where a word begins, searching from a position; no letter may precede a word of letters.
function place(text, word, from) {
  let start = text.indexOf(word, from);
  while (start > 0 && LETTER.test(word[0]) && LETTER.test(text[start - 1])) start = text.indexOf(word, start + 1);
  return start;
}
