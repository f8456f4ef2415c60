// Parts of all views: elements, words, and moving between words by keyboard.

const still = matchMedia("(prefers-reduced-motion: reduce)");

export function element(name, text = "", properties = {}) {
  return Object.assign(document.createElement(name), { textContent: text }, properties);
}

export function percent(weight) {
  return weight > 0 && weight < 0.005 ? "< 1 %" : `${Math.round(100 * weight)} %`;
}

const UNSURE = 0.5; // less probable words are marked

// Set a word's tooltip to its probability, and its label; mark the word if the model is unsure.
export function tellSure(made, probability, ...more) {
  const unsure = probability < UNSURE;
  made.classList.toggle("unsure", unsure);
  made.title = percent(probability);
  made.setAttribute("aria-label", [made.textContent, ...(unsure ? ["unsure"] : []), made.title, ...more].join(", "));
}

export function word(text, position) {
  return element("span", text || "·", { className: "word", role: "button", tabIndex: position ? -1 : 0 });
}

// Arrow keys move from word to word. The tab key stops at one word of a line.
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

// Fade in a new element, unless the user prefers reduced motion.
export function appear(made) {
  if (!still.matches) made.animate([{ opacity: 0 }, {}], 300);
}
