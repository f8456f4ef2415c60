// Words above, words below, and between them ribbons as wide as the weights. The strongest link of
// each word is always drawn. Pointing at a word, tapping it or moving to it by the arrow keys brings
// its ribbons forward. Where a row of words does not fit, the sides stand beside one another.

const SHOWN = 0.02;  // lesser weights have no ribbon
const HUES = 6;
const SVG = "http://www.w3.org/2000/svg";

const percent = weight => `${Math.round(100 * weight)} %`;

function button(text, label) {
  const found = document.createElement("button");
  found.type = "button";
  found.className = "token";
  found.textContent = text;
  found.tabIndex = -1;
  found.setAttribute("aria-label", label);
  return found;
}

/** The other words by weight, as they are told: "green 96 %, apple 3 %". */
function told(words, weights) {
  const order = weights.map((weight, n) => [weight, n]).filter(([weight]) => weight >= SHOWN);
  order.sort((a, b) => b[0] - a[0]);
  return order.slice(0, 3).map(([weight, n]) => `${words[n]} ${percent(weight)}`).join(", ");
}

/**
 * Fill an element with the words and ribbons of an alignment.
 *
 * @param {HTMLElement} place
 * @param {{source: string[], target: string[], weights: number[][], source_name?: string,
 *   target_name?: string}} data weights of shape (target, source)
 */
export function ribbons(place, { source, target, weights, source_name = "Source", target_name = "Target" }) {
  place.replaceChildren();
  place.classList.add("ribbons");
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("aria-hidden", "true");
  const column = i => weights.map(row => row[i]);
  const sides = [
    { words: source, name: source_name, about: i => told(target, column(i)) },
    { words: target, name: target_name, about: t => told(source, weights[t]) },
  ].map(({ words, name, about }, side) => {
    const group = document.createElement("div");
    group.className = side ? "side to" : "side from";
    group.dir = "auto";
    group.setAttribute("role", "group");
    group.setAttribute("aria-label", name);
    const arrow = side ? "looks at" : "is looked at by";
    group.append(...words.map((word, n) => button(word, `${word} ${arrow} ${about(n) || "nothing"}`)));
    return group;
  });
  const line = document.createElement("p");
  line.className = "told";
  place.append(sides[0], svg, sides[1], line);
  for (const side of sides) if (side.firstChild) side.firstChild.tabIndex = 0;

  const strongest = new Set();
  weights.forEach((row, t) => strongest.add(`${t},${row.indexOf(Math.max(...row))}`));
  source.forEach((_, i) => {
    const all = column(i);
    const best = Math.max(...all);
    if (best >= 0.2) strongest.add(`${all.indexOf(best)},${i}`);
  });
  const paths = [];
  weights.forEach((row, t) => row.forEach((weight, i) => {
    if (!(weight >= SHOWN)) return;
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("class", `${strongest.has(`${t},${i}`) ? "strong" : "weak"} hue-${t % HUES}`);
    path.style.setProperty("--weight", weight);
    path.dataset.ends = `${i},${t}`;
    paths.push({ path, ends: [i, t], weight });
  }));
  paths.sort((a, b) => a.weight - b.weight);
  svg.append(...paths.map(one => one.path));

  function lay() {
    place.classList.remove("beside");
    if (sides.some(side => side.scrollWidth > side.clientWidth + 1)) place.classList.add("beside");
    const beside = place.classList.contains("beside");
    const box = svg.getBoundingClientRect();
    svg.setAttribute("viewBox", `0 0 ${box.width || 1} ${box.height || 1}`);
    for (const { path, ends, weight } of paths) {
      const [a, b] = ends.map((n, side) => {
        const word = sides[side].children[n].getBoundingClientRect();
        return beside ? (word.top + word.bottom) / 2 - box.top : (word.left + word.right) / 2 - box.left;
      });
      const [w, h] = [box.width, box.height];
      path.setAttribute("d", beside
        ? `M0 ${a}C${w / 2} ${a} ${w / 2} ${b} ${w} ${b}`
        : `M${a} 0C${a} ${h / 2} ${b} ${h / 2} ${b} ${h}`);
      path.setAttribute("stroke-width", (1 + 9 * weight).toFixed(2));
    }
  }

  function show(side, n) {
    place.classList.toggle("active", n !== null);
    for (const { path, ends } of paths) path.classList.toggle("on", n !== null && ends[side] === n);
    sides.forEach((group, other) => [...group.children].forEach((word, m) => {
      const weight = n === null ? 0 : other === side ? Number(m === n) : side ? weights[n][m] : weights[m][n];
      word.classList.toggle("from", n !== null && other === side && m === n);
      word.style.setProperty("--lit", weight.toFixed(3));
      word.dataset.weight = weight;
    }));
    line.textContent = n === null ? "Point at a word, tap it, or use the arrow keys."
      : sides[side].children[n].getAttribute("aria-label");
  }

  sides.forEach((group, side) => {
    const words = [...group.children];
    words.forEach((word, n) => {
      word.addEventListener("pointerenter", () => show(side, n));
      word.addEventListener("focus", () => show(side, n));
      word.addEventListener("click", () => show(side, n));
    });
    group.addEventListener("focusout", event => {
      if (!place.contains(event.relatedTarget)) show(0, null);
    });
    group.addEventListener("keydown", event => {
      const now = words.indexOf(document.activeElement);
      const on = getComputedStyle(group).direction === "rtl" ? -1 : 1;
      const next = {
        ArrowRight: now + on, ArrowLeft: now - on, ArrowDown: now + 1, ArrowUp: now - 1,
        Home: 0, End: words.length - 1,
      }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      const to = words[Math.max(0, Math.min(words.length - 1, next))];
      words.forEach(word => { word.tabIndex = word === to ? 0 : -1; });
      to.focus();
    });
  });
  place.onpointerleave = () => {
    if (!place.contains(document.activeElement)) show(0, null);
  };
  show(0, null);
  lay();
  place.watching?.disconnect();
  let width = place.clientWidth;
  place.watching = new ResizeObserver(() => {
    if (place.clientWidth !== width) { width = place.clientWidth; lay(); }
  });
  place.watching.observe(place);
}
