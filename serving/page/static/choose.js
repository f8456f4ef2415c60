// Words of a translation that people change: the rest follows, and what is before stays.

import { gaps } from "./joined.js";
import { element, move, percent, tellSure } from "./look.js";
import { ask } from "./server.js";
import { fail } from "./status.js";

const INSIDE = /^[\p{L}\p{N}\p{M}'’-]/u; // what goes on with a word
const $ = (id) => document.getElementById(id);
const undone = []; // what stood before each change
let panel = null;
let asking = new AbortController();

// Show sentences in the translation's place. `changed(place, sentence)` is told what people choose.
export function showWords(sentences, changed) {
  closeChoices();
  const [spans, between] = [[], gaps(sentences)];
  const nodes = sentences.flatMap((sentence, place) => {
    if (!sentence.words?.length) return [sentence.text + between[place]];
    return [...sentence.words.flatMap((text, position) => {
      const space = text.match(/^\s*/)[0];
      const made = chosen(sentence, position, text.slice(space.length), spans.length);
      made.dataset.place = place;
      made.addEventListener("click", () => openChoices(made, sentence, position, place, changed));
      spans.push(made);
      return [space, made];
    }), between[place]];
  });
  spans.forEach((made, from) => made.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      made.click();
    } else if (event.key === "z" && (event.ctrlKey || event.metaKey)) undo(changed);
    else move(event, spans, from);
  }));
  $("translation").replaceChildren(...nodes);
}

// Forget what was changed: the text is another one.
export function forgetChanges() {
  undone.length = 0;
}

function chosen(sentence, position, text, number) {
  const probability = sentence.word_probabilities[position];
  const made = element("span", text, { className: "choice", tabIndex: number ? -1 : 0 });
  const [from, to] = sentence.changed ?? [0, 0];
  const isNew = position >= from && position < to;
  made.classList.toggle("changed", isNew);
  made.setAttribute("role", "button");
  made.setAttribute("aria-haspopup", "dialog");
  tellSure(made, probability, ...(isNew ? ["changed"] : []));
  return made;
}

async function openChoices(made, sentence, position, place, changed) {
  closeChoices();
  asking = new AbortController();
  const space = sentence.words[position].match(/^\s*/)[0];
  const before = sentence.words.slice(0, position).join("") + space;
  panel = element("div", "", { className: "choices-panel" });
  panel.setAttribute("role", "dialog");
  panel.setAttribute("aria-label", `Other words for ${made.textContent}`);
  const list = element("ul", "");
  const form = element("form");
  const own = element("input", "", { type: "text", autocomplete: "off" });
  own.setAttribute("aria-label", "Another word");
  form.append(own, " ", element("button", "Use it"), " ");
  const back = element("button", "Undo", { type: "button", disabled: !undone.length });
  form.append(back);
  panel.append(list, form);
  $("translation").after(panel);
  panel.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    closeChoices();
    made.focus();
  });
  const use = (next) => {
    undone.push({ place, position, sentence });
    changed(place, { ...next, source: sentence.source, gap: sentence.gap, changed: different(sentence.words, next.words) });
    focusWord(place, position);
  };
  const complete = (prefix) => ask("api/complete", { text: sentence.source, prefix }, asking.signal);
  const goOn = async (word) => {
    const prefix = before + word;
    try {
      const found = await complete(prefix);
      // A space says that the word is whole, and keeps a full stop away: where the word grew alone.
      use(INSIDE.test(found.text.slice(prefix.length)) ? await complete(`${prefix} `) : found);
    } catch (error) {
      fail(error);
    }
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (own.value.trim()) goOn(own.value.trim());
  });
  back.addEventListener("click", () => undo(changed));
  try {
    const { alternatives } = await ask("api/alternatives", { text: sentence.source, prefix: before }, asking.signal);
    list.replaceChildren(...alternatives.map(({ word, probability }) => {
      const item = element("li"), button = element("button", word, { type: "button" });
      button.setAttribute("aria-label", `${word}, ${percent(probability)}`);
      button.addEventListener("click", () => goOn(word));
      item.append(button, " ", element("span", percent(probability), { className: "score" }));
      return item;
    }));
    (list.querySelector("button") ?? own).focus();
  } catch (error) {
    fail(error);
  }
}

function undo(changed) {
  const last = undone.pop();
  if (!last) return;
  changed(last.place, last.sentence);
  focusWord(last.place, last.position);
}

// From which word to which they are others: those in front and those at the end that are the same are not.
function different(old, next) {
  const most = Math.min(old.length, next.length);
  let [from, same] = [0, 0];
  while (from < most && old[from] === next[from]) from++;
  while (same < most - from && old.at(-1 - same) === next.at(-1 - same)) same++;
  return [from, next.length - same];
}

function focusWord(place, position) {
  const words = [...$("translation").querySelectorAll(`[data-place="${place}"]`)];
  words[Math.min(position, words.length - 1)]?.focus();
}

function closeChoices() {
  asking.abort();
  panel?.remove();
  panel = null;
}
