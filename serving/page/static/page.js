// What the page does with the model that it finds.

import { startEvents } from "./events.js";
import { startImage } from "./image.js";
import { element } from "./look.js";
import { Refused } from "./server.js";
import { fail, whenConnected } from "./status.js";
import { startText } from "./text.js";

const $ = (id) => document.getElementById(id);

function showCard({ model, version, target, card, signatures }) {
  const lines = { Name: model, Version: version, ...(target && { Server: target }), ...card, Signatures: Object.keys(signatures).join(", ") };
  $("card").replaceChildren(...Object.entries(lines).flatMap(([name, value]) => [element("dt", name), element("dd", String(value))]));
  document.title = `${model}: where the model looks`;
}

// What a model is for is told by its signatures.
const KINDS = [["translate", "text", startText], ["read", "image", startImage], ["predict", "events", startEvents]];

whenConnected((model) => {
  showCard(model);
  const [, kind, start] = KINDS.find(([signature]) => model.signatures[signature]) ?? [];
  for (const section of document.querySelectorAll("[data-kind]")) section.hidden = section.dataset.kind !== kind;
  if (start) start(model);
  else fail(Object.assign(new Refused(`${model.model} has no signature that this page knows.`), { status: 400 }));
});
