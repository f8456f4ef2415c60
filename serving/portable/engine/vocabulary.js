// Words, characters, letters or symbols, looked up in a list: `serving.portable.read._tokenizers`.

import { clean } from "./clean.js";
import { unknownLetters, withSmall } from "./letters.js";
import { ALPHABETS, ELIDED, END_ID, MARK, SHOWN, UNK_ID, WORD } from "./rules.js";

const trimmed = (text) => text.replace(/^ +| +$/g, "");
// By kind: a text's tokens, and the text of tokens.
const KINDS = {
  words: { split: splitWords, join: (tokens) => trimmed(tokens.join("").replaceAll(MARK, " ")) },
  characters: { split: () => (text) => [...text], join: (tokens) => tokens.join("") },
  letters: {
    split: () => (text) => [...text.normalize("NFD")],
    join: (tokens) => tokens.join("").normalize("NFC"),
  },
  symbols: { split: () => (text) => text.match(/[^ \t\n\v\f\r]+/g) ?? [], join: (tokens) => tokens.join(" ") },
};

export class Vocabulary {
  // `about` is {kind, tokens}; for words also `characters`, runs of code points by name; for letters also
  // `cases` and `known`, the tables of `training.data.letters`, which files of earlier versions lack.
  constructor({ kind, tokens, characters, cases, known }) {
    this.kind = kind;
    this.hasLetters = ALPHABETS.includes(kind);
    this.tokens = [...SHOWN, ...tokens];
    this.size = this.tokens.length;
    this.ids = new Map(tokens.map((token, place) => [token, place + END_ID + 1]));
    this.cases = cases && new Map(Object.entries(cases));
    this.known = known && new Set(known);
    const split = KINDS[kind].split(characters);
    this.split = this.hasLetters && cases ? (text) => split(this.withSmall(text)) : split;
    this.join = KINDS[kind].join;
  }

  encode(text) {
    return this.split(clean(text)).map((token) => this.id(token));
  }

  withSmall(text) {
    return withSmall(this.kind === "letters" ? text.normalize("NFD") : text, this.cases, this.ids);
  }

  // A capital that training never saw is its small letter.
  id(token) {
    const small = this.cases ? this.cases.get(token) : token.toLowerCase();
    return this.ids.get(token) ?? (this.hasLetters ? this.ids.get(small) : undefined) ?? UNK_ID;
  }

  // The letters of a text that training never saw, each once.
  unseen(text) {
    if (!this.hasLetters) return "";
    if (this.known) return unknownLetters(clean(text), this.known, this.kind === "letters" && this.ids).join("");
    return [...new Set(this.split(clean(text)).filter((token) => this.id(token) === UNK_ID))].join("");
  }

  decode(ids) {
    return this.join(ids.map((id) => this.tokens[id]));
  }

  token(id) {
    return this.tokens[id];
  }
}

function splitWords(characters) {
  const inside = (runs) => runs.map(([first, last]) => `${escaped(first)}-${escaped(last)}`).join("");
  const [ideographs, letters, spaces] = ["ideographs", "letters", "spaces"].map((name) => inside(characters[name]));
  const elided = ELIDED.replace(/\[(\w+)\]|\w/g, (found, several) => anyCase(several ?? found));
  const rule = WORD.replace("ELIDED", elided).replace("IDEOGRAPH", `[${ideographs}]`).replaceAll("LETTER", `[${letters}]`);
  const word = new RegExp(rule, "gu");
  const space = new RegExp(`[${spaces}]+`, "gu");
  return (text) => {
    const clean = trimmed(text.replace(space, " "));
    return clean ? ` ${clean}`.replaceAll(" ", MARK).match(word) : [];
  };
}

const escaped = (code) => `\\u{${code.toString(16)}}`;
// As Python's, to which "ſ" is an "s".
const anyCase = (letters) => `[${letters}${letters.toUpperCase()}${letters.includes("s") ? "ſ" : ""}]`;
