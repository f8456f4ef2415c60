// Words that a model has no token for, as they were typed.

const UNKNOWN = /<unk>|⁇/;
const LETTER = /[\p{L}\p{N}]/u;

// Return `words` of `text`, in which unknown ones are what stands between the known ones. They stay
// what they are where a known word is not in the text, as where a tokenizer rewrites it.
export function typed(words, text) {
  const found = [...words];
  let [end, unknown] = [0, []];
  for (let n = 0; n <= words.length; n++) {
    if (n < words.length && UNKNOWN.test(words[n])) {
      unknown.push(n);
      continue;
    }
    const at = n < words.length ? place(text, words[n], end + Number(unknown.length > 0)) : text.length;
    if (at < 0) return words;
    const parts = text.slice(end, at).trim().split(/\s+/);
    unknown.forEach((m, i) => {
      found[m] = (m === unknown.at(-1) ? parts.slice(i).join(" ") : parts[i]) || words[m];
    });
    [end, unknown] = [at + words[n]?.length, []];
  }
  return found;
}

// Where a word begins, from a place on; a word of letters begins where none is before it.
function place(text, word, from) {
  for (let at = text.indexOf(word, from); at >= 0; at = text.indexOf(word, at + 1)) {
    if (!at || !LETTER.test(word[0]) || !LETTER.test(text[at - 1])) return at;
  }
  return -1;
}
