// What the page does with the model that it finds.

import { fail, Refused, whenConnected } from "./ask.js";
import { element } from "./look.js";
import { startText } from "./text.js";

const $ = (id) => document.getElementById(id);

function showCard({ model, version, target, card, signatures }) {
  const lines = { Name: model, Version: version, Server: target, ...card, Signatures: Object.keys(signatures).join(", ") };
  $("card").replaceChildren(...Object.entries(lines).flatMap(([name, value]) => [element("dt", name), element("dd", String(value))]));
  document.title = `${model}: where the model looks`;
}

whenConnected((model) => {
  showCard(model);
  if (model.signatures.translate) startText(model);
  else fail(Object.assign(new Refused(`${model.model} has no signature that this page knows.`), { status: 400 }));
});
