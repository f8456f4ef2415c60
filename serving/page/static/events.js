// View of models of histories: a table of visits, the probability after each visit, the weights.

import { element, percent } from "./look.js";
import { ask } from "./server.js";
import { about, fail, succeed } from "./status.js";

const PAUSE = 400; // milliseconds without a key before the model is asked
// Layout of the chart in pixels: the probabilities, the bars below, the margins.
const [TOP, MIDDLE, HIGHEST, BOTTOM, LEFT, RIGHT] = [20, 150, 180, 255, 52, 12];
const BAR = 10;
const $ = (id) => document.getElementById(id);
let model = null;
let timer = null;
let running = new AbortController();
let shown = null;

export function startEvents(found) {
  model = found;
  if (!startEvents.started) {
    startEvents.started = true;
    $("table").addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(opened, PAUSE);
    });
    $("table-file").addEventListener("change", async () => {
      $("table").value = await $("table-file").files[0].text();
      opened();
    });
    for (const id of ["id-column", "time-column", "person"]) $(id).addEventListener("change", update);
    new ResizeObserver(() => shown && $("chart").clientWidth !== shown.width && show(shown.answer)).observe($("chart"));
    if (!$("table").value) $("table").value = model.example || (model.card.examples[0] ?? "");
  }
  opened();
}

// Read the columns of a new table; guess the columns of ids and times by their names.
function opened() {
  const columns = $("table").value.split(/\r?\n/, 1)[0].split(",").map((name) => name.trim().replace(/^"|"$/g, ""));
  const guess = (pattern, otherwise) => columns.find((name) => pattern.test(name)) ?? columns[otherwise];
  choose($("id-column"), columns, guess(/^(id|person|patient)$/i, 0));
  choose($("time-column"), columns, guess(/^(time|day|days|date)$/i, 1));
  update();
}

function choose(select, names, chosen) {
  const before = select.value;
  select.replaceChildren(...names.map((name) => element("option", name, { value: name })));
  select.value = names.includes(before) ? before : chosen;
}

async function update() {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  try {
    if (!$("table").value.trim()) {
      $("course").hidden = true;
      shown = null;
      succeed(about(model));
      return;
    }
    const started = performance.now();
    const question = { table: $("table").value, id: $("id-column").value, time: $("time-column").value, person: $("person").value };
    const answer = await ask("api/follow", question, signal);
    choose($("person"), answer.people, answer.person);
    show(answer);
    succeed(`${about(model)}: ${Math.round(performance.now() - started)} ms`);
  } catch (error) {
    fail(error);
  }
}

function svg(name, properties, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(properties)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

function show(answer) {
  const { person, time, columns, probabilities, weights, truncated, notes } = answer;
  $("course").hidden = false;
  $("notes").textContent = notes.join(". ");
  const width = $("chart").clientWidth;
  shown = { answer, width };
  const [first, last] = [Math.min(...time), Math.max(...time)];
  const x = (t) => LEFT + 6 + (width - LEFT - RIGHT - 12) * (last > first ? (t - first) / (last - first) : 0.5);
  const y = (probability) => MIDDLE - (MIDDLE - TOP) * probability;
  const chart = svg("svg", { width, height: BOTTOM + 24, role: "group", "aria-label": `The history of ${person}` });
  for (const level of [0, 0.5, 1]) {
    chart.append(svg("line", { x1: LEFT, x2: width - RIGHT, y1: y(level), y2: y(level), class: "axis" }), svg("text", { x: 4, y: y(level) + 4 }, percent(level)));
  }
  const largest = svg("text", { x: 4, y: HIGHEST + 8 });
  chart.append(svg("line", { x1: LEFT, x2: width - RIGHT, y1: BOTTOM, y2: BOTTOM, class: "axis" }), largest, svg("text", { x: 4, y: BOTTOM }, "weight"));
  for (const [t, anchor] of last > first ? [[first, "start"], [last, "end"]] : [[first, "middle"]]) {
    chart.append(svg("text", { x: x(t), y: BOTTOM + 18, "text-anchor": anchor }, String(t)));
  }
  chart.append(svg("polyline", { points: time.map((t, n) => `${x(t)},${y(probabilities[n])}`).join(" "), class: "line" }));
  const bars = time.map((t) => svg("rect", { x: x(t) - BAR / 2, y: BOTTOM, width: BAR, height: 0, rx: 2, class: "bar" }));
  const dots = time.map((t, n) => svg("circle", { cx: x(t), cy: y(probabilities[n]), r: 6, class: "event", tabindex: 0, role: "img", "aria-label": `time ${t}, ${percent(probabilities[n])}` }));
  const known = (at) => {
    const most = Math.max(0.01, ...weights[at]);
    bars.forEach((bar, n) => {
      const weight = weights[at][n] ?? 0;
      const height = (BOTTOM - HIGHEST) * weight / most;
      bar.setAttribute("y", BOTTOM - height);
      bar.setAttribute("height", height);
      bar.dataset.weight = weight.toFixed(4);
    });
    largest.textContent = percent(most);
    dots.forEach((dot, n) => dot.classList.toggle("from", n === at));
    const values = Object.entries(columns).filter(([, cells]) => cells[at] !== "").map(([name, cells]) => `${name} ${cells[at]}`);
    const cut = truncated ? ". The history has more events than the model reads: of the first ones, what was known" : "";
    $("event").textContent = `Time ${time[at]}: ${percent(probabilities[at])}. ${values.join(", ")}${cut}`;
  };
  dots.forEach((dot, n) => {
    for (const kind of ["mouseenter", "focus"]) dot.addEventListener(kind, () => known(n));
  });
  chart.append(...bars, ...dots);
  $("chart").replaceChildren(chart);
  known(time.length - 1);
  const names = ["Time", "Probability", "Weight", ...Object.keys(columns)];
  const head = element("tr");
  head.append(...names.map((name) => element("th", name, { scope: "col" })));
  const rows = time.map((t, n) => {
    const row = element("tr");
    const cells = [t, percent(probabilities[n]), (weights.at(-1)[n] ?? 0).toFixed(3), ...Object.values(columns).map((all) => all[n])];
    row.append(...cells.map((cell) => element("td", String(cell))));
    return row;
  });
  const table = element("table", "", { className: "plain" });
  table.append(element("caption", "Weights are those of the last event.", { className: "hint" }), head, ...rows);
  $("numbers").replaceChildren(table);
}
