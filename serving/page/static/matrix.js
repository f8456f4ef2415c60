// Shows the whole matrix of weights: rows are target words, columns are source words.

import { element, percent } from "./look.js";

const SAID = 0.05; // smaller weights have a shade but no number

export function matrix({ source, target, weights }) {
  const head = element("tr");
  head.append(element("td"), ...source.map((word) => {
    const cell = element("th", "", { scope: "col" });
    cell.append(element("span", word, { dir: "auto" }));
    return cell;
  }));
  const body = element("tbody");
  target.forEach((word, row) => {
    const cells = weights[row].map((weight, column) => {
      const text = weight >= SAID ? String(Math.round(100 * weight)) : "";
      const cell = element("td", text, { title: `${word} ← ${source[column]}: ${percent(weight)}` });
      cell.style.setProperty("--lit", weight.toFixed(3));
      return cell;
    });
    const made = element("tr");
    made.append(element("th", word, { scope: "row", dir: "auto" }), ...cells);
    body.append(made);
  });
  const top = element("thead");
  top.append(head);
  const whole = element("table", "", { className: "matrix" });
  whole.append(element("caption", "Percent: rows are the words written, columns the words looked at.", { className: "hint" }), top, body);
  const scroll = element("div", "", { className: "scroll", tabIndex: 0 });
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", "Attention weights");
  scroll.append(whole);
  return scroll;
}
