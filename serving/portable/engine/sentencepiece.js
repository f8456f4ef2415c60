// SentencePiece models: unigram (Kudo 2018) and BPE, with the normalisation that they were made with.

import { clean } from "./clean.js";
import { MARK, SHOWN } from "./rules.js";

const [UNKNOWN, PENALTY] = [2, 10];
const NORMAL = 1;
const WHITE = 32; // the byte of a space

export class SentencePiece {
  // `about` is {model, pieces, scores, types, rules, prefix, trim}: scores are float32, types those of
  // SentencePiece, rules its precompiled character map.
  constructor(about) {
    Object.assign(this, about);
    this.size = this.pieces.length;
    this.normalize = normalizer(about);
    this.ids = new Map();
    this.longest = 1;
    this.least = Infinity;
    this.unknown = this.types.indexOf(UNKNOWN);
    this.pieces.forEach((piece, id) => {
      if (this.types[id] !== NORMAL) return;
      this.ids.set(piece, id);
      this.longest = Math.max(this.longest, piece.length);
      this.least = Math.min(this.least, this.scores[id]);
    });
  }

  encode(text) {
    const read = this.normalize(clean(text));
    const ids = this.model === "bpe" ? this.merged(read) : this.likeliest(read);
    // Adjacent unknown characters are one token.
    return ids.filter((id, i) => id !== this.unknown || ids[i - 1] !== this.unknown);
  }

  decode(ids) {
    let text = "";
    for (const id of ids) {
      const piece = this.pieces[id];
      text += text === "" && piece.startsWith(MARK) ? piece.slice(1) : piece;
    }
    return text.replaceAll(MARK, " ");
  }

  token(id) {
    return SHOWN[id] ?? this.pieces[id];
  }

  // The pieces whose scores have the greatest sum (Viterbi), in float32 as SentencePiece adds.
  likeliest(text) {
    const best = new Float32Array(text.length + 1).fill(-Infinity);
    const [from, piece] = [new Int32Array(text.length + 1), new Int32Array(text.length + 1)];
    best[0] = 0;
    for (let start = 0; start < text.length;) {
      const width = text.codePointAt(start) > 0xffff ? 2 : 1;
      const reach = (end, id, score) => {
        const sum = Math.fround(best[start] + score);
        if (sum > best[end]) [best[end], from[end], piece[end]] = [sum, start, id];
      };
      const listed = this.ids.has(text.slice(start, start + width));
      for (let end = start + 1; end <= Math.min(text.length, start + this.longest); end++) {
        const id = this.ids.get(text.slice(start, end));
        if (id !== undefined) reach(end, id, this.scores[id]);
      }
      if (!listed) reach(start + width, this.unknown, Math.fround(this.least - PENALTY));
      start += width;
    }
    const ids = [];
    for (let end = text.length; end > 0; end = from[end]) ids.push(piece[end]);
    return ids.reverse();
  }

  // Merge the adjacent pair with the greatest score (of equals, the first) until no pair is a piece.
  merged(text) {
    const symbols = [...text];
    const pair = (i) => (i + 1 < symbols.length ? this.ids.get(symbols[i] + symbols[i + 1]) : undefined);
    const score = (i) => this.scores[pair(i)] ?? -Infinity;
    const scores = symbols.map((_, i) => score(i));
    for (;;) {
      let best = -1;
      for (let i = 0; i < scores.length; i++) if (scores[i] > (scores[best] ?? -Infinity)) best = i;
      if (best < 0) break;
      symbols.splice(best, 2, symbols[best] + symbols[best + 1]);
      scores.splice(best, 1);
      scores[best] = score(best);
      if (best) scores[best - 1] = score(best - 1);
    }
    return symbols.map((symbol) => this.ids.get(symbol) ?? this.unknown);
  }
}

// Return the function that writes a text as a model reads it: characters by its rules, spaces as marks.
function normalizer({ rules, prefix, trim }) {
  const replace = replacer(rules);
  return (text) => {
    const made = [];
    let space = trim;
    for (const part of replace(new TextEncoder().encode(text))) {
      let start = 0;
      while (space && part[start] === WHITE) start++;
      if (start === part.length) continue;
      made.push(...part.subarray(start));
      space = trim && part.at(-1) === WHITE;
    }
    let clean = new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(made)).replaceAll(" ", MARK);
    if (trim) clean = clean.replace(/▁+$/, "");
    return clean && prefix ? MARK + clean : clean;
  };
}

// The rules are a double-array trie (Darts) of byte strings, and what each is replaced by.
function replacer(rules) {
  const size = rules.length ? new DataView(rules.buffer, rules.byteOffset).getUint32(0, true) : 0;
  const units = new Uint32Array(rules.slice(4, 4 + size).buffer);
  const texts = rules.subarray(4 + size);
  const offset = (unit) => (unit >>> 10) << ((unit & 512) >>> 6);

  // Return the longest string of the trie at `start`: its length and its value.
  function longest(bytes, start) {
    let match = null;
    let node = size ? offset(units[0]) : 0;
    for (let at = start; at < bytes.length && size; at++) {
      node ^= bytes[at];
      const unit = units[node];
      if ((unit & 0x800000ff) >>> 0 !== bytes[at]) break;
      node ^= offset(unit);
      if ((unit >>> 8) & 1) match = { length: at + 1 - start, value: units[node] & 0x7fffffff };
    }
    return match;
  }

  return function* (bytes) {
    for (let at = 0; at < bytes.length;) {
      const match = longest(bytes, at);
      if (match) yield texts.subarray(match.value, texts.indexOf(0, match.value));
      const length = match?.length ?? characterLength(bytes[at]);
      if (!match) yield bytes.subarray(at, at + length);
      at += length;
    }
  };
}

const characterLength = (byte) => (byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4);
