// Draws source words, target words, and ribbons between them whose width is the weight. The strongest
// link of each word stands out. Pointing at a word, tapping it or moving to it by arrow keys
// highlights its ribbons. The two sides are rows, or columns if the place is wide or a row of words
// does not fit. New words in the same place move the existing ribbons.

import { appear, element, move, percent } from "./look.js";

const SHOWN = 0.02; // smaller weights have no ribbon, except the largest of a target word
const WIDE = 900; // pixels, from which on a place is wide
const HUES = 6;
const SVG = "http://www.w3.org/2000/svg";
const views = new WeakMap(); // the view of each place

/**
 * Fill an element with the words and ribbons of an alignment.
 *
 * @param {HTMLElement} place
 * @param {{source: string[], target: string[], weights: number[][], source_name?: string,
 *   target_name?: string}} data weights of shape (target, source)
 */
export function ribbons(place, { source, target, weights, source_name = "Source", target_name = "Target" }) {
  if (!views.has(place)) views.set(place, build(place));
  const view = views.get(place);
  view.weights = [source.map((_, i) => weights.map((row) => row[i])), weights]; // by source word, and by target word
  const words = [source, target];
  view.sides.forEach((group, side) => {
    const relation = side ? "looks at" : "is looked at by";
    group.setAttribute("aria-label", side ? target_name : source_name);
    fillWords(group, words[side], (n) => `${relation} ${told(words[1 - side], view.weights[side][n]) || "nothing"}`);
  });
  fillPaths(view);
  show(view, 0, null);
  lay(view);
}

/** Build the parts of a view that do not depend on the words. */
function build(place) {
  const svg = document.createElementNS(SVG, "svg");
  const layers = ["weak", "strong"].map(() => document.createElementNS(SVG, "g"));
  svg.append(...layers);
  svg.setAttribute("aria-hidden", "true");
  const sides = ["from", "to"].map((name) => {
    const group = element("div", "", { className: `words ${name}`, dir: "auto" });
    group.setAttribute("role", "group");
    return group;
  });
  const line = element("p", "", { className: "told" });
  place.classList.add("ribbons");
  place.replaceChildren(sides[0], svg, sides[1], line);
  const view = { place, svg, layers, sides, line, paths: new Map(), width: 0 };
  listen(view);
  new ResizeObserver(() => place.clientWidth !== view.width && lay(view)).observe(place);
  return view;
}

function listen(view) {
  view.sides.forEach((group, side) => {
    for (const kind of ["pointerover", "focusin", "click"]) {
      group.addEventListener(kind, (event) => {
        const n = [...group.children].indexOf(event.target.closest(".word"));
        if (n >= 0) show(view, side, n);
      });
    }
    group.addEventListener("keydown", (event) => move(event, [...group.children], [...group.children].indexOf(event.target)));
  });
  view.place.addEventListener("focusout", (event) => view.place.contains(event.relatedTarget) || show(view, 0, null));
  view.place.addEventListener("pointerleave", () => view.place.contains(document.activeElement) || show(view, 0, null));
}

function fillWords(group, words, about) {
  while (group.childElementCount > words.length) {
    group.lastChild.remove(); // a space
    group.lastChild.remove();
  }
  words.forEach((text, n) => {
    let word = group.children[n];
    if (!word) {
      word = element("button", "", { type: "button", className: "word", tabIndex: n ? -1 : 0 });
      group.append(word, " ");
    }
    const label = text || "·";
    if (word.textContent !== label) {
      word.textContent = label;
      appear(word);
    }
    word.setAttribute("aria-label", `${label} ${about(n)}`);
  });
}

/** Return the words of the other side by weight, as text: "green 96 %, apple 3 %". */
function told(words, weights) {
  const order = weights.map((weight, n) => [weight, n]).filter(([weight]) => weight >= SHOWN);
  order.sort((a, b) => b[0] - a[0]);
  return order.slice(0, 3).map(([weight, n]) => `${words[n]} ${percent(weight)}`).join(", ");
}

/** Return the links "source,target" of the largest weight of each word. */
function strongest([columns, rows]) {
  const found = new Set(rows.map((row, t) => `${row.indexOf(Math.max(...row))},${t}`));
  columns.forEach((column, i) => {
    const best = Math.max(...column);
    if (best >= SHOWN) found.add(`${i},${column.indexOf(best)}`);
  });
  return found;
}

function fillPaths({ weights, layers, paths }) {
  const best = strongest(weights);
  const gone = new Set(paths.keys());
  weights[1].forEach((row, t) => row.forEach((weight, i) => {
    const key = `${i},${t}`;
    if (weight < SHOWN && !best.has(key)) return;
    gone.delete(key);
    if (!paths.has(key)) paths.set(key, { path: document.createElementNS(SVG, "path"), ends: [i, t] });
    const one = Object.assign(paths.get(key), { weight });
    const strong = best.has(key);
    one.path.dataset.ends = key;
    one.path.setAttribute("class", `${strong ? "strong" : "weak"} hue-${t % HUES}`);
    one.path.style.setProperty("--weight", weight);
    const layer = layers[Number(strong)];
    if (one.path.parentNode !== layer) {
      layer.append(one.path);
      appear(one.path);
    }
  }));
  for (const key of gone) {
    paths.get(key).path.remove();
    paths.delete(key);
  }
}

function lay(view) {
  const { place, svg, sides, paths } = view;
  view.width = place.clientWidth;
  place.classList.remove("beside");
  const beside = view.width >= WIDE || sides.some((side) => side.scrollWidth > side.clientWidth + 1);
  place.classList.toggle("beside", beside);
  const box = svg.getBoundingClientRect();
  const [w, h] = [box.width, box.height];
  for (const { path, ends, weight } of paths.values()) {
    const [a, b] = ends.map((n, side) => {
      const word = sides[side].children[n].getBoundingClientRect();
      return beside ? (word.top + word.bottom) / 2 - box.top : (word.left + word.right) / 2 - box.left;
    });
    path.setAttribute("d", beside
      ? `M0 ${a}C${w / 2} ${a} ${w / 2} ${b} ${w} ${b}`
      : `M${a} 0C${a} ${h / 2} ${b} ${h / 2} ${b} ${h}`);
    path.setAttribute("stroke-width", (1 + 11 * weight).toFixed(2));
  }
}

/** Highlight word n of a side; null highlights no word. */
function show({ place, sides, line, paths, weights }, side, n) {
  place.classList.toggle("active", n !== null);
  for (const { path, ends } of paths.values()) path.classList.toggle("on", n !== null && ends[side] === n);
  sides.forEach((group, other) => [...group.children].forEach((word, m) => {
    const weight = n === null ? 0 : other === side ? Number(m === n) : weights[side][n][m];
    word.classList.toggle("from", n !== null && other === side && m === n);
    word.style.setProperty("--lit", weight.toFixed(3));
    word.dataset.weight = weight.toFixed(4);
  }));
  line.textContent = n === null ? "Point at a word, tap it, or use the arrow keys."
    : sides[side].children[n].getAttribute("aria-label");
}
