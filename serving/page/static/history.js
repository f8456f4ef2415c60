// Texts that the user saved, stored in this browser only, and links that contain a text in their
// fragment, which browsers do not send to any server.

import { element } from "./look.js";

const MOST = 50;
const KEY = "keras-attention-history";
const $ = (id) => document.getElementById(id);

// `current()` returns the pair on the page, {text, translation}; `open(text)` shows a saved text.
export function startHistory(current, open) {
  const own = stored();
  const linked = fromLink().map((pair) => own.find(({ text }) => text === pair.text) ?? pair);
  const rest = own.filter(({ text }) => !linked.some((pair) => pair.text === text));
  let kept = [...linked, ...rest].slice(0, MOST);
  const show = () => {
    $("history").replaceChildren(...kept.map((pair) => line(pair, open)));
    $("empty").hidden = kept.length > 0;
    $("clear").hidden = !kept.length;
    try {
      localStorage.setItem(KEY, JSON.stringify(kept));
    } catch {
      // Without storage, the page still works.
    }
  };
  $("keep").addEventListener("click", () => {
    const pair = { ...current(), at: Date.now() };
    if (!pair.text.trim()) return;
    kept = [pair, ...kept.filter((other) => other.text !== pair.text)].slice(0, MOST);
    show();
  });
  $("clear").addEventListener("click", () => {
    kept = [];
    show();
  });
  $("share").addEventListener("click", async () => {
    const pair = current();
    const pairs = [pair, ...kept.filter((other) => other.text !== pair.text)].filter(({ text }) => text.trim());
    location.hash = encodeURIComponent(JSON.stringify(pairs.map(({ text }) => text)));
    try {
      await navigator.clipboard.writeText(location.href);
      $("shared").textContent = "The link is copied; it holds these texts.";
    } catch {
      $("shared").textContent = "The link is in the address line; it holds these texts.";
    }
  });
  show();
  return kept[0]?.text;
}

function line({ text, translation, at }, open) {
  const button = element("button", "", { type: "button" });
  button.append(element("span", text, { dir: "auto" }));
  if (at) button.append(when(new Date(at)));
  if (translation) button.append(element("span", translation, { className: "said", dir: "auto" }));
  button.addEventListener("click", () => open(text));
  const item = element("li");
  item.append(button);
  return item;
}

// The time for today, the date for earlier days.
function when(date) {
  const today = date.toDateString() === new Date().toDateString();
  const text = date.toLocaleString([], today ? { hour: "numeric", minute: "2-digit" } : { day: "numeric", month: "short", year: "numeric" });
  return element("time", text, { dateTime: date.toISOString() });
}

function fromLink() {
  try {
    const texts = JSON.parse(decodeURIComponent(location.hash.slice(1)));
    return texts.filter((text) => typeof text === "string").map((text) => ({ text: text.slice(0, 5000), translation: "" }));
  } catch {
    return [];
  }
}

function stored() {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? "[]").filter((pair) => typeof pair.text === "string" && typeof pair.translation === "string");
  } catch {
    return [];
  }
}
