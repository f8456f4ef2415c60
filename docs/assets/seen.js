// The figures of the article "Attention, seen".

import { choice, data, english, fill, make, pair, slider } from "./figures.js";
import { ribbons } from "./ribbons.js";

const NAMES = { none: "One vector", additive: "Additive attention", general: "Multiplicative attention" };
const percent = weight => `${Math.round(100 * weight)} %`;

/** A translation, with the words that its reference lacks underlined. */
function compared(said, expected) {
  const left = expected.split(" ");
  return make("p", { class: "said" }, ...said.split(" ").flatMap(word => {
    const place = left.indexOf(word);
    if (place >= 0) left.splice(place, 1);
    return [place >= 0 ? word : make("u", { text: word }), " "];
  }));
}

/** The softmax of scores times a factor, of weights. */
function sharpened(weights, factor) {
  const powers = weights.map(weight => Math.max(weight, 1e-4) ** factor);
  const sum = powers.reduce((a, b) => a + b);
  return powers.map(power => power / sum);
}

function table(one, tell) {
  const found = make("table", { class: "matrix" });
  const head = make("tr", {}, make("td"), ...one.source.map(word => make("th", { scope: "col" }, make("span", { text: word }))));
  const rows = one.target.map((word, t) => make("tr", {}, make("th", { scope: "row", text: word }),
    ...one.source.map((other, i) => {
      const cell = make("td", { style: `--lit:${one.weights[t][i]}`, title: `${word} ← ${other}: ${percent(one.weights[t][i])}` });
      cell.addEventListener("pointerenter", () => tell(cell.title));
      return cell;
    })));
  found.append(make("thead", {}, head), make("tbody", {}, ...rows));
  return found;
}

const grouped = number => Math.round(number).toLocaleString("en");

fill({
  async lengths(place) {
    const found = await data("lengths");
    const view = make("div", { "aria-live": "polite" });
    const show = n => view.replaceChildren(
      make("p", { class: "asked", text: found.texts[n - 1] }),
      ...["none", "additive"].flatMap(name => [
        make("h4", { text: NAMES[name] }), compared(found.said[name][n - 1], found.expected[n - 1]),
      ]));
    const control = slider("Sentences", { min: 1, max: found.texts.length, value: 1 }, show);
    place.prepend(control, view);
    show(1);
  },

  async bleu(place) {
    const { bleu } = await data("lengths");
    const rows = bleu.none.map(([words], n) => make("div", { class: "bars" },
      make("span", { text: `${words} words` }),
      ...["none", "additive"].map(name => {
        const value = bleu[name][n][1];
        return make("span", { class: `bar ${name}`, style: `--share:${value / 60}`, text: `${NAMES[name]} ${value.toFixed(1)}` });
      })));
    place.prepend(...rows);
  },

  async sharpness(place) {
    const [one] = (await data("sentences")).additive;
    const view = make("div");
    const show = factor => ribbons(view, pair({ ...one, weights: one.weights.map(row => sharpened(row, factor)) }));
    const say = factor => `× ${factor.toFixed(1)}`;
    place.prepend(slider("Scores", { min: 0, max: 4, step: 0.1, value: 1, say }, show), view);
    show(1);
  },

  async pair(place) {
    const found = await data("sentences");
    const sides = ["additive", "general"].map(name => {
      const view = make("div");
      return { name, view, box: make("div", {}, make("h4", { text: NAMES[name] }), view) };
    });
    const { group, press } = choice("Sentence", found.additive.map(english), n =>
      sides.forEach(({ name, view }) => ribbons(view, pair(found[name][n]))));
    place.prepend(group, make("div", { class: "both" }, ...sides.map(side => side.box)));
    press(0);
  },

  async matrix(place) {
    const found = (await data("sentences")).additive;
    const view = make("div", { class: "scroll" });
    const line = make("p", { class: "told", "aria-live": "polite" });
    const { group, press } = choice("Sentence", found.map(english), n => {
      line.textContent = "";
      view.replaceChildren(table(found[n], text => { line.textContent = text; }));
    });
    place.prepend(group, view, line);
    press(0);
  },

  async cost(place) {
    const view = make("dl", { class: "cost", "aria-live": "polite" });
    const show = n => view.replaceChildren(...[
      ["Steps one after the other, in a recurrent network", grouped(n)],
      ["Scores, one for each pair of words", grouped(n * n)],
      ["Multiplications of a general score", grouped(n * n * 256)],
      ["Values of tanh of an additive score", grouped(n * n * 256)],
      ["Memory of those values, one sentence", `${(n * n * 256 * 4 / 2 ** 20).toFixed(1)} MiB`],
      ["Memory of the scores alone", `${(n * n * 4 / 2 ** 10).toFixed(1)} KiB`],
    ].flatMap(([term, value]) => [make("dt", { text: term }), make("dd", { text: value })]));
    place.prepend(slider("Words on both sides", { min: 5, max: 500, step: 5, value: 30 }, show), view);
    show(30);
  },

  async image(place) {
    const found = await data("images");
    const [height, width] = [found[0].weights[0].length, found[0].weights[0][0].length];
    const picture = make("img", { alt: "Handwritten digits" });
    const grid = make("div", { class: "regions", style: `--columns:${width};--rows:${height}`, "aria-hidden": "true" });
    grid.append(...Array.from({ length: width * height }, () => make("span")));
    const words = make("div");
    const show = (one, t) => {
      const flat = one.weights[t].flat();
      const best = flat.indexOf(Math.max(...flat));
      [...grid.children].forEach((cell, n) => {
        cell.style.setProperty("--lit", flat[n]);
        cell.classList.toggle("best", n === best);
      });
    };
    const { group, press } = choice("Image", found.map((_, n) => `Image ${n + 1}`), n => {
      const one = found[n];
      picture.src = one.image;
      const digits = choice("Digit", [...one.text], t => show(one, t));
      words.replaceChildren(digits.group);
      [...digits.group.children].forEach((digit, t) => {
        for (const event of ["pointerenter", "focus"]) digit.addEventListener(event, () => digits.press(t));
      });
      digits.press(0);
    });
    place.prepend(group, make("div", { class: "stacked" }, picture, grid), words);
    press(0);
  },

  async events(place) {
    const found = await data("events");
    const view = make("div", { "aria-live": "polite" });
    const controls = make("div");
    const show = (visits, n) => {
      const { days, weights, probability } = visits[n - 1];
      const end = visits[visits.length - 1].days.at(-1);
      view.replaceChildren(
        make("div", { class: "timeline", "aria-hidden": "true" }, ...days.map((day, i) => make("span", {
          style: `--at:${day / end};--weight:${weights[i]}`, title: `day ${day}: ${percent(weights[i])}`,
        }))),
        make("p", { text: `Day ${days.at(-1)}: ${percent(probability)}. Weights of the visits: ${weights.map(percent).join(", ")}.` }));
    };
    const { group, press } = choice("Patient", found.map((_, n) => `Patient ${n + 1}`), n => {
      const visits = found[n];
      const count = visits.length;
      controls.replaceChildren(slider("Visits so far", { min: 1, max: count, value: count }, m => show(visits, m)));
      show(visits, count);
    });
    place.prepend(group, controls, view);
    press(0);
  },
});
