// What a search is told to begin with: `training.decode.prefix`.
//
// A hypothesis carries {place, begun}: how much of the prefix it has said, one more than all where
// it has gone on, and whether the word after the prefix has begun. `start` is that of the first,
// `after(at, token)` follows it, and `allow(row, at)` returns log-probabilities (V), -Infinity of
// what a hypothesis may not say.

const END = 3;
const SHOWN = 80; // characters of a prefix that is refused

export class Prefix {
  // `prefix` is of `Spelling.normalize`; a last word that is `whole` does not go on.
  constructor(spelling, prefix, whole = false) {
    Object.assign(this, { spelling, prefix, whole, size: prefix.length, start: { place: 0, begun: false } });
    this.ways = spelling.ways(prefix, whole);
    if (!this.ways) {
      const shown = [...prefix].slice(0, SHOWN).join("");
      throw new Error(`prefix[0] has characters that the model has no tokens for: ${shown}`);
    }
  }

  after({ place, begun }, token) {
    const { texts, first } = this.spelling;
    const length = (place ? texts : first)[token].length;
    return { place: Math.min(place + length, this.size + 1), begun };
  }

  allow(row, { place }) {
    const { continues } = this.spelling;
    if (place < this.size) return only(row, [...this.ways[place].exact, ...this.ways[place].beyond]);
    return this.whole && place === this.size ? row.map((v, id) => (continues[id] ? -Infinity : v)) : row;
  }
}

// How probable the prefix is: a result ends with the token in which the prefix does, and the tokens
// that go on after it are one end.
export class Covered extends Prefix {
  allow(row, { place }) {
    if (place >= this.size) return withEnd(only(row, []), 0);
    const { exact, beyond } = this.ways[place];
    return withEnd(only(row, exact), logSumExp(only(row, beyond)));
  }
}

// The words that follow the prefix: a result ends where the next word does, and all that may come
// after it is one end. A prefix that ends in a word is followed by what completes it.
export class NextWord extends Prefix {
  constructor(spelling, prefix) {
    super(spelling, prefix);
    this.inside = spelling.begunWord(prefix) < prefix.length;
  }

  after(at, token) {
    const { place, begun } = super.after(at, token);
    const shown = place > this.size && /[^ ]/.test(this.spelling.texts[token]);
    return { place, begun: begun || shown || (this.inside && place >= this.size) };
  }

  allow(row, at) {
    const { continues, texts } = this.spelling;
    const allowed = super.allow(row, at);
    const over = at.begun ? logSumExp(allowed.map((v, id) => (continues[id] ? -Infinity : v))) : -Infinity;
    return withEnd(allowed.map((v, id) => ((at.begun ? continues[id] : texts[id]) ? v : -Infinity)), over);
  }
}

function only(row, ids) {
  const found = new Float32Array(row.length).fill(-Infinity);
  for (const id of ids) found[id] = row[id];
  return found;
}

function withEnd(row, end) {
  row[END] = end;
  return row;
}

export function logSumExp(numbers) {
  const most = numbers.reduce((a, b) => Math.max(a, b), -Infinity);
  return most === -Infinity ? most : most + Math.log(numbers.reduce((sum, v) => sum + Math.exp(v - most), 0));
}
