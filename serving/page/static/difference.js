// Finds and marks the words of a text that another text lacks.

import { element } from "./look.js";

const [WORDS, CHARACTERS] = [/[\p{L}\p{N}'’]+|\S/gu, /\S/gu];

// Return the words of `text`, each with whether it is in the longest common subsequence with `first`.
// If `first` has no spaces, the units are characters.
function differences(text, first) {
  const unit = /\s/.test(first.trim()) ? WORDS : CHARACTERS;
  const [a, b] = [text, first].map((each) => each.match(unit) ?? []);
  const longest = Array.from({ length: a.length + 1 }, () => new Array(b.length + 1).fill(0));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      longest[i][j] = a[i] === b[j] ? 1 + longest[i + 1][j + 1] : Math.max(longest[i + 1][j], longest[i][j + 1]);
    }
  }
  const same = new Set();
  for (let [i, j] = [0, 0]; i < a.length && j < b.length;) {
    if (a[i] === b[j]) {
      same.add(i);
      i++;
      j++;
    } else if (longest[i][j + 1] >= longest[i + 1][j]) j++;
    else i++;
  }
  return a.map((word, i) => [word, same.has(i)]);
}

// A list item with a hypothesis and its score; words that the best hypothesis lacks are marked.
export function scored({ text, score }, best) {
  const item = element("li");
  const said = element("span", text ? "" : "nothing", { dir: "auto" });
  let end = 0;
  for (const [word, same] of differences(text, best.text)) {
    const at = text.indexOf(word, end);
    said.append(text.slice(end, at), same ? word : element("mark", word));
    end = at + word.length;
  }
  item.append(said, " ", element("span", `(${score.toFixed(2)})`, { className: "score" }));
  return item;
}
