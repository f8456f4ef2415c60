// Two lines of words that light each other up, and the matrix of their weights.

export function element(name, text = "", properties = {}) {
  return Object.assign(document.createElement(name), { textContent: text }, properties);
}

const light = (weight) => `rgba(var(--light), ${Math.min(1, Math.max(0, weight)).toFixed(3)})`;
export const percent = (weight) => `${Math.round(100 * weight)} %`;

// A section for one sentence. `alignment` has words `source` (S) and `target` (T) and `weights` (T, S).
export function sentenceView(alignment) {
  const { source, target, weights } = alignment;
  const view = element("div", "", { className: "sentence" });
  const lines = { source: source.map(word), target: target.map(word) };
  const weight = (side, from, to) => (side === "source" ? weights[to][from] : weights[from][to]);
  const show = (side, from) => {
    const [own, other] = side === "source" ? [lines.source, lines.target] : [lines.target, lines.source];
    own.forEach((word, position) => word.classList.toggle("from", position === from));
    other.forEach((word, to) => {
      word.style.background = light(weight(side, from, to));
      word.dataset.weight = weight(side, from, to).toFixed(4);
    });
  };
  const clear = () => {
    for (const word of [...lines.source, ...lines.target]) {
      word.style.background = "";
      word.classList.remove("from");
      delete word.dataset.weight;
    }
  };
  for (const [side, words, others] of [["source", lines.source, target], ["target", lines.target, source]]) {
    words.forEach((word, from) => {
      const strongest = others.map((_, to) => to).sort((a, b) => weight(side, from, b) - weight(side, from, a));
      const told = strongest.filter((to) => weight(side, from, to) >= 0.05).slice(0, 3);
      word.setAttribute("aria-label", [word.textContent, ...told.map((to) => `${others[to]} ${percent(weight(side, from, to))}`)].join(", "));
      word.addEventListener("mouseenter", () => show(side, from));
      word.addEventListener("focus", () => show(side, from));
      word.addEventListener("mouseleave", clear);
      word.addEventListener("blur", clear);
      word.addEventListener("keydown", (event) => move(event, words, from));
    });
    const row = element("p", "", { className: "words", dir: "auto" });
    row.setAttribute("role", "group");
    row.setAttribute("aria-label", side === "source" ? "Source words" : "Words of the translation");
    words.forEach((word, position) => row.append(...(position ? [" ", word] : [word])));
    view.append(row);
  }
  const matrix = element("details");
  matrix.append(element("summary", "All weights"));
  matrix.addEventListener("toggle", () => matrix.open && !matrix.querySelector("table") && matrix.append(table(alignment)));
  view.append(matrix);
  return view;
}

export function word(text, position) {
  return element("span", text || "·", { className: "word", tabIndex: position ? -1 : 0 });
}

// Arrow keys go from word to word; of a line, one word is reached by the tab key.
export function move(event, words, from) {
  const right = getComputedStyle(words[0].parentElement).direction === "rtl" ? -1 : 1;
  const step = { ArrowRight: right, ArrowLeft: -right, Home: -from, End: words.length - 1 - from }[event.key];
  const next = words[from + step];
  if (step === undefined || !next) return;
  event.preventDefault();
  words[from].tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

function table({ source, target, weights }) {
  const head = element("tr");
  head.append(element("td"), ...source.map((word) => {
    const cell = element("th", "", { scope: "col" });
    cell.append(element("span", word, { dir: "auto" }));
    return cell;
  }));
  const body = element("tbody");
  target.forEach((word, row) => {
    const cells = weights[row].map((weight, column) => {
      const cell = element("td", "", { title: `${word} ← ${source[column]}: ${percent(weight)}` });
      cell.style.background = light(weight);
      cell.setAttribute("aria-label", percent(weight));
      return cell;
    });
    const made = element("tr");
    made.append(element("th", word, { scope: "row", dir: "auto" }), ...cells);
    body.append(made);
  });
  const top = element("thead");
  top.append(head);
  const whole = element("table");
  whole.append(element("caption", "Rows are the words written, columns the words looked at.", { className: "hint" }), top, body);
  const scroll = element("div", "", { className: "scroll", tabIndex: 0 });
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", "Attention weights");
  scroll.append(whole);
  return scroll;
}
