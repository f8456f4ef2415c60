// The live figures: <figure data-figure="NAME"> is filled by the function of that name, from the
// JSON of docs/figures, which docs/_site/figures.py makes of small models.

import { ribbons } from "./ribbons.js";

export const data = name => fetch(new URL(`../figures/${name}.json`, import.meta.url)).then(answer => answer.json());

/** Make an element: its tag, attributes (`text` is its text) and children. */
export function make(tag, { text, ...attributes } = {}, ...children) {
  const found = document.createElement(tag);
  if (text !== undefined) found.textContent = text;
  for (const [name, value] of Object.entries(attributes)) found.setAttribute(name, value);
  found.append(...children);
  return found;
}

/** A labelled slider that says its value. */
export function slider(label, { min, max, step = 1, value, say = String }, changed) {
  const input = make("input", { type: "range", min, max, step, value });
  const output = make("output", { text: say(value) });
  input.addEventListener("input", () => {
    output.textContent = say(Number(input.value));
    input.setAttribute("aria-valuetext", output.textContent);
    changed(Number(input.value));
  });
  return make("label", { class: "control" }, make("span", { text: label }), input, output);
}

/** Buttons of which one is pressed. */
export function choice(label, names, changed) {
  const group = make("div", { class: "choice", role: "group", "aria-label": label });
  const press = n => {
    [...group.children].forEach((one, m) => one.setAttribute("aria-pressed", String(m === n)));
    changed(n);
  };
  names.forEach((name, n) => {
    const one = make("button", { type: "button", text: name });
    one.addEventListener("click", () => press(n));
    group.append(one);
  });
  return { group, press };
}

export const english = one => one.source.join(" ").replace(" .", ".");
export const pair = one => ({ ...one, source_name: "English", target_name: "French" });

const FIGURES = {
  async sentences(place) {
    const found = (await data("sentences"))[place.dataset.model];
    const view = make("div");
    const { group, press } = choice("Sentence", found.map(english), n => ribbons(view, pair(found[n])));
    place.prepend(view, group);
    press(0);
  },
};

export async function fill(figures) {
  for (const place of document.querySelectorAll("[data-figure]")) {
    if (figures[place.dataset.figure]) await figures[place.dataset.figure](place);
  }
}

fill(FIGURES);
