// A row of examples to begin with.

import { element } from "./look.js";

// Show a button for each text, which `open` brings to the page.
export function showExamples(texts, open) {
  const row = document.getElementById("examples");
  row.hidden = !texts.length;
  row.replaceChildren(element("span", "Try", { className: "hint" }), ...texts.map((text) => {
    const button = element("button", text, { type: "button", dir: "auto" });
    button.addEventListener("click", () => open(text));
    return button;
  }));
}
