// View of models of images: drop, paste, choose or draw an image; see its text and the attention.

import { scored } from "./difference.js";
import { showExamples } from "./examples.js";
import { element, move, tellSure, word } from "./look.js";
import { light, outline } from "./regions.js";
import { ask } from "./server.js";
import { about, fail, succeed } from "./status.js";

const PAUSE = 400; // milliseconds after a stroke before the drawing is read
const STEP = 250; // milliseconds between characters of the animation
const PEN = 9; // width of the pen in pixels of the pad
const $ = (id) => document.getElementById(id);
const still = matchMedia("(prefers-reduced-motion: reduce)");
const picture = element("img", "", { alt: "The image that is read" });
let model = null;
let last = null;
let running = new AbortController();
let playing = null;
let doubtful = undefined; // weights of the uncertain characters, shown when no animation runs

export function startImage(found) {
  model = found;
  if (startImage.started) {
    if (last) read(last); // the server was unreachable before
    return;
  }
  startImage.started = true;
  $("file").addEventListener("change", () => $("file").files[0] && read($("file").files[0]));
  $("play").addEventListener("click", play);
  addEventListener("paste", (event) => {
    const image = [...event.clipboardData.files].find(({ type }) => type.startsWith("image/"));
    if (image) read(image);
  });
  for (const kind of ["dragover", "dragleave", "drop"]) addEventListener(kind, dropped);
  startPad();
  succeed(about(model));
  begin(model.card.examples);
}

// Show the examples, which are images in base64.
function begin(examples) {
  const images = examples.map((text) => new Blob([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], { type: "image/png" }));
  showExamples(images, read, (image, n) => element("img", "", { src: URL.createObjectURL(image), alt: `Example ${n + 1}` }));
  if (images.length) read(images[0]);
}

function dropped(event) {
  event.preventDefault();
  $("drop").classList.toggle("over", event.type === "dragover");
  if (event.type === "drop" && event.dataTransfer.files[0]) read(event.dataTransfer.files[0]);
}

function startPad() {
  const pen = $("pad").getContext("2d");
  let timer = null;
  const wipe = () => pen.fillRect(0, 0, $("pad").width, $("pad").height);
  const at = (event) => {
    const box = $("pad").getBoundingClientRect();
    return [(event.clientX - box.left) * $("pad").width / box.width, (event.clientY - box.top) * $("pad").height / box.height];
  };
  Object.assign(pen, { strokeStyle: "#fff", lineWidth: PEN, lineCap: "round", lineJoin: "round" });
  wipe();
  $("wipe").addEventListener("click", wipe);
  $("pad").addEventListener("pointerdown", (event) => {
    clearTimeout(timer);
    $("pad").setPointerCapture(event.pointerId);
    pen.beginPath();
    pen.moveTo(...at(event));
  });
  $("pad").addEventListener("pointermove", (event) => {
    if (!event.buttons) return;
    pen.lineTo(...at(event));
    pen.stroke();
  });
  $("pad").addEventListener("pointerup", () => {
    timer = setTimeout(() => $("pad").toBlob((image) => read(image)), PAUSE);
  });
}

async function read(image) {
  last = image;
  running.abort();
  running = new AbortController();
  try {
    const started = performance.now();
    const found = await ask("api/read", new Blob([image]), running.signal);
    URL.revokeObjectURL(picture.src);
    picture.src = URL.createObjectURL(image);
    picture.hidden = !image.type.startsWith("image/");
    $("figure").prepend(picture);
    show(found);
    succeed(`${about(model)}: ${Math.round(performance.now() - started)} ms`);
  } catch (error) {
    fail(error);
  }
}

function show({ text, score, tokens, token_probabilities, weights, hypotheses }) {
  const words = (tokens.length ? tokens : [text]).map(word);
  words.forEach((one, from) => {
    if (from in token_probabilities) tellSure(one, token_probabilities[from]);
    const lit = () => {
      words.forEach((other) => other.classList.toggle("from", other === one));
      light(weights[from]);
      outline(weights[from]);
    };
    const choose = () => {
      stop();
      lit();
    };
    for (const kind of ["mouseenter", "focus"]) one.addEventListener(kind, choose);
    for (const kind of ["mouseleave", "blur"]) one.addEventListener(kind, dark);
    one.addEventListener("keydown", (event) => move(event, words, from));
    one.lightUp = lit;
  });
  const unsure = weights.filter((_, from) => words[from].classList.contains("unsure"));
  doubtful = unsure.length ? unsure.reduce(added) : undefined;
  $("reading-text").replaceChildren(...words);
  $("said").textContent = `${text || "nothing"} (${score.toFixed(2)})`;
  $("reading").hidden = false;
  $("readings").replaceChildren(...hypotheses.slice(1).map((one) => scored(one, hypotheses[0])));
  $("other-readings").hidden = hypotheses.length < 2;
  $("play").hidden = still.matches || !weights.length;
  play();
}

// Animate the characters one after the other, each with the region that the model attended to.
function play() {
  clearTimeout(playing);
  dark();
  if ($("play").hidden) return;
  const words = [...$("reading-text").children];
  for (const one of words) one.classList.add("unsaid");
  const next = (position) => {
    if (position === words.length) return dark();
    words[position].classList.remove("unsaid");
    words[position].lightUp();
    playing = setTimeout(next, STEP, position + 1);
  };
  next(0);
}

function dark() {
  light(doubtful);
  outline();
  for (const one of $("reading-text").children) one.classList.remove("from");
}

// End the animation and show all characters, because the user points at one.
function stop() {
  clearTimeout(playing);
  for (const one of $("reading-text").children) one.classList.remove("unsaid");
}

const added = (one, other) => one.map((row, i) => row.map((weight, j) => weight + other[i][j]));
