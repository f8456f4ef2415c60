// A row of buttons with examples.

import { element } from "./look.js";

// Show a button for each example. A click calls `open`; `show` returns the content of the button.
export function showExamples(examples, open, show = (text) => text) {
  const row = document.getElementById("examples");
  row.hidden = !examples.length;
  row.replaceChildren(element("span", "Try", { className: "hint" }), ...examples.map((example, n) => {
    const button = element("button", "", { type: "button", dir: "auto" });
    button.append(show(example, n));
    button.addEventListener("click", () => open(example));
    return button;
  }));
}
