// What a text has that another has not.

import { element } from "./look.js";

const PARTS = /\s+|[\p{L}\p{N}'’]+|./gsu;
const UNSPACED = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]/u;

// Return parts of `text`, [part, whether it differs], by the longest common subsequence of words.
function differences(text, first) {
  const [a, b] = [parts(text), parts(first)];
  const longest = Array.from({ length: a.length + 1 }, () => new Array(b.length + 1).fill(0));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      longest[i][j] = a[i] === b[j] ? 1 + longest[i + 1][j + 1] : Math.max(longest[i + 1][j], longest[i][j + 1]);
    }
  }
  const found = [];
  for (let [i, j] = [0, 0]; i < a.length;) {
    const same = a[i] === b[j];
    if (!same && j < b.length && longest[i][j + 1] >= longest[i + 1][j]) j++;
    else {
      found.push([a[i], !same && a[i].trim() !== ""]);
      i++;
      j += Number(same);
    }
  }
  return found;
}

// A hypothesis and its score, in a list; what the best one has not is marked.
export function scored({ text, score }, best) {
  const item = element("li");
  const said = element("span", text ? "" : "nothing", { dir: "auto" });
  said.append(...differences(text, best.text).map(([part, other]) => (other ? element("mark", part) : part)));
  item.append(said, " ", element("span", `(${score.toFixed(2)})`, { className: "score" }));
  return item;
}

function parts(text) {
  return (text.match(PARTS) ?? []).flatMap((part) => (UNSPACED.test(part) ? [...part] : [part]));
}
