// Shows a translator's attention: ribbons between the words of each sentence, or the whole matrix.

import { element } from "./look.js";
import { matrix } from "./matrix.js";
import { ribbons } from "./ribbons.js";

const VIEWS = {
  ribbons: (place, alignment) => ribbons(place, { ...alignment, source_name: "Source words", target_name: "Words of the translation" }),
  matrix: (place, alignment) => place.replaceChildren(matrix(alignment)),
};
const $ = (id) => document.getElementById(id);
let chosen = "ribbons";
let shown = [];

// Show the alignments {source, target, weights} of sentences. Existing ribbons move to the new ones.
export function showAttention(alignments) {
  shown = alignments;
  const views = $("sentences");
  while (views.childElementCount > shown.length) views.lastElementChild.remove();
  while (views.childElementCount < shown.length) views.append(sentence());
  $("looks").hidden = !shown.length;
  shown.forEach((alignment, n) => {
    for (const place of views.children[n].children) place.hidden = place.dataset.view !== chosen;
    VIEWS[chosen](views.children[n].querySelector(`[data-view=${chosen}]`), alignment);
  });
}

export function startAttention() {
  const buttons = [...$("views").querySelectorAll("button")];
  for (const button of buttons) {
    button.addEventListener("click", () => {
      chosen = button.value;
      for (const one of buttons) one.setAttribute("aria-pressed", String(one === button));
      showAttention(shown);
    });
  }
}

function sentence() {
  const made = element("div", "", { className: "sentence" });
  for (const name of Object.keys(VIEWS)) {
    const place = element("div");
    place.dataset.view = name;
    made.append(place);
  }
  return made;
}
