// Parts of all views: elements, words, and the ways between them.

const still = matchMedia("(prefers-reduced-motion: reduce)");

export function element(name, text = "", properties = {}) {
  return Object.assign(document.createElement(name), { textContent: text }, properties);
}

export function percent(weight) {
  return `${Math.round(100 * weight)} %`;
}

export function word(text, position) {
  return element("span", text || "·", { className: "word", tabIndex: position ? -1 : 0 });
}

// Arrow keys go from word to word; of a line, one word is reached by the tab key.
export function move(event, words, from) {
  const right = getComputedStyle(words[0].parentElement).direction === "rtl" ? -1 : 1;
  const ways = { ArrowRight: right, ArrowLeft: -right, ArrowDown: 1, ArrowUp: -1, Home: -from, End: words.length - 1 - from };
  const next = words[from + ways[event.key]];
  if (!next) return;
  event.preventDefault();
  words[from].tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

// Let something new come softly, unless motion is unwanted.
export function appear(made) {
  if (!still.matches) made.animate([{ opacity: 0 }, {}], 300);
}
