// The status line, and reconnecting to a server that was unreachable.

import { ask } from "./server.js";

const POLL = 2000; // milliseconds between attempts to reconnect
const status = document.getElementById("status");
let polling = null;
let onReturn = () => {};

// Show an error on one line. If the server is unreachable, try to reconnect until it answers.
export function fail(error) {
  if (error.name === "AbortError") return;
  status.className = "error";
  status.textContent = error.message;
  if (error.status !== 400) poll();
}

export function succeed(text) {
  status.className = "";
  status.textContent = text;
}

// Show which model answers, and where.
export function about({ model, version, target }) {
  return `${model}, version ${version}, ${target ? `at ${target}` : "in this browser"}`;
}

// Call `connected` with the model whenever the server answers again.
export function whenConnected(connected) {
  onReturn = connected;
  poll(0);
}

function poll(delay = POLL) {
  if (polling !== null) return;
  polling = setTimeout(async () => {
    polling = null;
    try {
      onReturn(await ask("api/model"));
    } catch (error) {
      fail(error);
    }
  }, delay);
}
