// Starts the page: finds the model and chooses its view.

import { startEvents } from "./events.js";
import { startImage } from "./image.js";
import { element } from "./look.js";
import { Refused } from "./server.js";
import { fail, whenConnected } from "./status.js";
import { startText } from "./text.js";

const $ = (id) => document.getElementById(id);

// Show a line about the model, which opens to all known facts.
function showCard({ model, version, target, card, signatures }) {
  const names = new Intl.DisplayNames("en", { type: "language" });
  const languages = card.languages.map((code) => names.of(code));
  const summary = [languages.join(" to "), card.score].filter(Boolean);
  $("title").textContent = model;
  $("summary").textContent = summary.join(" · ");
  document.title = [model, ...summary.slice(0, 1), "where the model looks"].join(" · ");
  if (languages.length) [$("text-label").textContent, $("translation-label").textContent] = languages;
  const lines = { Name: model, Version: version, ...(target && { Server: target }), ...card.lines, Signatures: Object.keys(signatures).join(", ") };
  $("card").replaceChildren(...Object.entries(lines).map(([name, value]) => {
    const line = element("div");
    line.append(element("dt", name), element("dd", String(value)));
    return line;
  }));
  $("about").hidden = false;
}

// The signatures of a model show its task.
const KINDS = [["translate", "text", startText], ["read", "image", startImage], ["predict", "events", startEvents]];

$("mark").src = document.querySelector("link[rel=icon]").href;
whenConnected((model) => {
  showCard(model);
  const [, kind, start] = KINDS.find(([signature]) => model.signatures[signature]) ?? [];
  for (const section of document.querySelectorAll("[data-kind]")) section.hidden = section.dataset.kind !== kind;
  if (start) start(model);
  else fail(Object.assign(new Refused(`${model.model} has no signature that this page knows.`), { status: 400 }));
});
