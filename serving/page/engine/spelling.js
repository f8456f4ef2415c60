// Which tokens spell the beginning of a text, cut in any way, and the words of a text:
// `training.data.spelling` and `training.decode.words`.

const END = 3; // the last of the special tokens, which no text shows
const CJK = "\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}";
const INSIDE = `(?:(?![${CJK}])[\\p{L}]|[\\p{N}\\p{M}]|['’-])`; // what goes on with a word
const GOES_ON = new RegExp(`^${INSIDE}`, "u");
const LAST_WORD = new RegExp(`${INSIDE}+$`, "u");
// What stands for a space, of the kinds whose texts begin with none.
const SPACES = { sentencepiece: /[▁ ]+/gu, words: /[▁\p{Z}\p{Cc}]+/gu, symbols: /[ \t\n\v\f\r]+/gu };

export class Spelling {
  // `tokenizer` is the target's.
  constructor(tokenizer) {
    this.kind = tokenizer.kind;
    const text = (token) => ({ symbols: ` ${token}`, characters: token, letters: token }[this.kind] ?? token.replaceAll("▁", " "));
    this.texts = Array.from({ length: tokenizer.size }, (_, id) => (id > END ? text(tokenizer.token(id)) : ""));
    this.first = SPACES[this.kind] ? this.texts.map((text) => text.replace(/^ /, "")) : this.texts;
    this.continues = this.texts.map((text) => GOES_ON.test(text));
    this.longest = this.texts.reduce((most, text) => Math.max(most, text.length), 0);
    [this.inner, this.leading] = [byText(this.texts), byText(this.first)];
  }

  // A prefix as tokens spell it: runs of spaces are one, and none is in front.
  normalize(prefix) {
    const spaces = SPACES[this.kind];
    return spaces ? prefix.replace(spaces, " ").replace(/^ /, "") : this.decompose(prefix);
  }

  decompose(text) {
    return this.kind === "letters" ? text.normalize("NFD") : text;
  }

  compose(text) {
    return this.kind === "letters" ? text.normalize("NFC") : text;
  }

  // Where the word begins that a prefix ends in; its end if there is none.
  begunWord(prefix) {
    return prefix.replace(LAST_WORD, "").length;
  }

  // The tokens that may follow at each place in a prefix, {exact, beyond}: those that spell a part
  // of the rest, and those that begin with all of it and go on, of which `whole`, a last word that is
  // complete, has none. Returns null if no tokens spell the prefix.
  ways(prefix, whole) {
    const found = [];
    const open = new Set([prefix.length]); // places from which the rest can be spelled
    for (let place = prefix.length - 1; place >= 0; place--) {
      const [texts, known] = place ? [this.texts, this.inner] : [this.first, this.leading];
      const rest = prefix.slice(place);
      const exact = [];
      for (let size = 1; size <= Math.min(this.longest, rest.length); size++) {
        if (open.has(place + size)) exact.push(...(known.get(rest.slice(0, size)) ?? []));
      }
      if (rest === " ") exact.push(END); // the word is complete, and may be the last
      const beyond = [];
      if (!whole && rest.length < this.longest) {
        texts.forEach((text, id) => text.length > rest.length && text.startsWith(rest) && beyond.push(id));
      }
      if (exact.length || beyond.length) open.add(place);
      found[place] = { exact, beyond };
    }
    if (!open.has(0)) return null;
    found[0]?.exact.push(...(this.leading.get("") ?? [])); // a space that is not shown
    return found;
  }

  // The words of ids, each with the space in front of it, and the probability of each after those
  // before it. `logProbs` has that of each token.
  words(ids, logProbs) {
    const found = [];
    ids.forEach((id, place) => {
      if (id <= END) return;
      if (!found.length || !this.continues[id]) found.push({ text: "", sum: 0 });
      found.at(-1).text += this.texts[id];
      found.at(-1).sum += logProbs[place];
    });
    if (found.length && SPACES[this.kind]) found[0].text = found[0].text.replace(/^ /, "");
    return {
      words: found.map(({ text }) => this.compose(text)),
      word_probabilities: found.map(({ sum }) => Math.exp(sum)),
    };
  }
}

// Map texts to the tokens that have them.
function byText(texts) {
  const found = new Map();
  texts.forEach((text, id) => {
    if (id > END) found.set(text, [...(found.get(text) ?? []), id]);
  });
  return found;
}
