// View of text models: translates while the user types, then shows the attention.

import { showAttention, startAttention } from "./attention.js";
import { scored } from "./difference.js";
import { showExamples } from "./examples.js";
import { startHistory } from "./history.js";
import { gaps, joined } from "./joined.js";
import { element, tellSure } from "./look.js";
import { join } from "./pieces.js";
import { ask } from "./server.js";
import { about, fail, succeed } from "./status.js";
import { typed, visible } from "./unknown.js";

const PAUSE = 200; // milliseconds without a key before the model is asked
const MOST_KEPT = 500; // sentences with a cached answer, so that typing requests the last sentence only
const $ = (id) => document.getElementById(id);
const looked = new Map();
let model = null;
let timer = null;
let running = new AbortController();
let shown = { text: "", sentences: [] };
let wanted = 3; // translations to show, if the model returns as many

export function startText(found) {
  model = found;
  looked.clear();
  $("text").maxLength = found.most_characters;
  if (!startText.started) {
    startText.started = true;
    $("text").addEventListener("input", later);
    startAttention();
    $("shown").addEventListener("input", () => {
      wanted = Number($("shown").value);
      showHypotheses();
    });
    const first = startHistory(() => ({ text: shown.text, translation: said() }), bring);
    const examples = [...new Set([found.example, ...found.card.examples].filter(Boolean))];
    showExamples(examples, put);
    if (!$("text").value) $("text").value = first ?? examples[0] ?? "";
  }
  update();
}

const said = () => joined(shown.sentences);

function put(text) {
  $("text").value = text;
  update();
}

function bring(text) {
  put(text);
  $("text").focus();
}

function later() {
  running.abort();
  $("translation").classList.add("stale");
  clearTimeout(timer);
  timer = setTimeout(update, PAUSE);
}

async function update() {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  const text = $("text").value;
  $("count").textContent = `${text.length.toLocaleString()} of ${model.most_characters.toLocaleString()} characters`;
  try {
    const started = performance.now();
    const { sentences } = text.trim() ? await ask("api/translate", { text }, signal) : { sentences: [] };
    shown = { text, sentences };
    showSaid();
    $("translation").classList.remove("stale");
    const cut = sentences.some(({ truncated }) => truncated);
    const strange = [...new Set(sentences.map(({ unknown }) => unknown ?? "").join(""))].map(visible).join(" ");
    $("note").textContent = [
      cut ? "The text is longer than the model reads: its end is not translated." : "",
      strange ? `Training never saw ${strange}. Do not trust the output for it.` : "",
    ].filter(Boolean).join(" ");
    succeed(`${about(model)}${text.trim() ? `: ${Math.round(performance.now() - started)} ms` : ""}`);
    const unknown = [...new Set(sentences.map(({ source }) => source))].filter((source) => !looked.has(source));
    if (unknown.length) {
      const answer = await ask("api/look", { texts: unknown }, signal);
      if (looked.size > MOST_KEPT) looked.clear();
      unknown.forEach((source, position) => looked.set(source, asTyped(source, answer.sentences[position])));
    }
    showSentences();
  } catch (error) {
    fail(error);
  }
}

function asTyped(text, { alignment, hypotheses }) {
  const words = alignment && join(alignment);
  return { alignment: words && { ...words, source: typed(words.source, text) }, hypotheses };
}

// Show the translation; mark the words that the model is unsure of.
function showSaid() {
  const between = gaps(shown.sentences);
  $("translation").replaceChildren(...shown.sentences.flatMap((sentence, place) => [
    ...(sentence.words?.length ? marked(sentence) : [sentence.text]),
    between[place],
  ]));
}

function marked({ words, word_probabilities }) {
  return words.flatMap((text, position) => {
    const space = text.match(/^\s*/)[0];
    const made = element("span", text.slice(space.length), { role: "note" });
    tellSure(made, word_probabilities[position]);
    return [space, made];
  });
}

function showSentences() {
  const known = shown.sentences.map(({ source }) => looked.get(source)).filter(Boolean);
  showAttention(known.map(({ alignment }) => alignment).filter(Boolean));
  showHypotheses();
}

// Show the hypotheses of the last sentence. The export fixes the width of the search, so the slider
// ends at the number of hypotheses found; it is hidden for a single hypothesis.
function showHypotheses() {
  const last = shown.sentences.at(-1);
  const hypotheses = looked.get(last?.source)?.hypotheses ?? [];
  const most = hypotheses.length;
  const count = Math.min(wanted, most);
  $("others").hidden = most < 2;
  $("others-title").textContent = `Other translations${shown.sentences.length > 1 ? " of the last sentence" : ""}`;
  $("shown").max = Math.max(1, most);
  $("shown").value = count;
  $("shown").nextElementSibling.textContent = `${count} of ${most}`;
  $("hypotheses").replaceChildren(...hypotheses.slice(0, count).map((one) => scored(one, hypotheses[0])));
}
