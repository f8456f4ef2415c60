// Words, characters or symbols, looked up in a list: `serving.client.local.tokenizers`.

const SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"];
const [UNKNOWN, FIRST] = [1, 4];
const MARK = "▁";
const ELIDED = ["[cdjlmnst]", "qu", "jusqu", "lorsqu", "puisqu", "quoiqu"];

export class Vocabulary {
  // `about` is {kind, tokens}, and for words `characters`: runs of code points by name.
  constructor({ kind, tokens, characters }) {
    this.tokens = [...SPECIAL, ...tokens];
    this.ids = new Map(tokens.map((token, place) => [token, place + FIRST]));
    this.split = { words: words(characters), characters: (text) => [...text], symbols: (text) => text.match(/[^ \t\n\v\f\r]+/g) ?? [] }[kind];
    this.join = { words: (all) => all.join("").replaceAll(MARK, " ").replace(/^ +| +$/g, ""), characters: (all) => all.join(""), symbols: (all) => all.join(" ") }[kind];
  }

  encode(text) {
    return this.split(text).map((token) => this.ids.get(token) ?? UNKNOWN);
  }

  decode(ids) {
    return this.join(ids.map((id) => this.tokens[id]));
  }

  token(id) {
    return this.tokens[id];
  }
}

function words(characters) {
  if (!characters) return undefined;
  const inside = (runs) => runs.map(([first, last]) => `${escaped(first)}-${escaped(last)}`).join("");
  const [ideographs, letters, spaces] = ["ideographs", "letters", "spaces"].map((name) => inside(characters[name]));
  // In either case, which Python's "s" has a third form of.
  const elided = ELIDED.map((part) => part.replace(/\[(\w+)\]|\w/g, (found, several) => anyCase(several ?? found))).join("|");
  const word = new RegExp(`${MARK}?(?:[${ideographs}]|(?:${elided})['’]|[${letters}]+(?:['’][${letters}]+)*|[^${MARK}])`, "gu");
  const space = new RegExp(`[${spaces}]+`, "gu");
  return (text) => {
    const clean = text.replace(space, " ").replace(/^ +| +$/g, "");
    return clean ? ` ${clean}`.replaceAll(" ", MARK).match(word) : [];
  };
}

const escaped = (code) => `\\u{${code.toString(16)}}`;
const anyCase = (letters) => `[${letters}${letters.toUpperCase()}${letters.includes("s") ? "ſ" : ""}]`;
