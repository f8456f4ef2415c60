// Sends requests to the model in this page, as `static/server.js` does to a server.
//
// The page contains the model and the worker's code, or loads them from files next to it.

import { decoded, unpacked } from "./packed.js";

export class Refused extends Error {}

const waiting = new Map();
let number = 0;
let ready = null;
let worker = null;

// Send a request; return the response. Throws Refused with a message, or AbortError if `signal` aborts.
export async function ask(path, body, signal) {
  ready ??= start();
  await ready.catch((error) => {
    ready = null;
    throw error;
  });
  signal?.throwIfAborted();
  const id = ++number;
  return new Promise((resolve, reject) => {
    waiting.set(id, { resolve, reject });
    signal?.addEventListener("abort", () => {
      if (!waiting.delete(id)) return;
      worker.postMessage({ cancel: id });
      reject(signal.reason);
    });
    worker.postMessage({ id, path, body });
  });
}

async function start() {
  const inside = (id) => document.getElementById(id)?.textContent;
  const code = inside("worker");
  const bar = Object.assign(document.createElement("progress"), { max: 1 });
  bar.setAttribute("aria-label", "The model is loading");
  document.querySelector("header").append(bar);
  try {
    worker?.terminate();
    worker = new Worker(code ? await script(code) : "worker.js");
    worker.postMessage({ load: code ? { text: inside("model") } : { url: "model.bin" } });
    await new Promise((resolve, reject) => {
      worker.onerror = (event) => reject(new Refused(`The model cannot be loaded: ${event.message ?? "its code is missing"}`));
      worker.onmessage = ({ data: { loaded, ready, error, id, answer } }) => {
        if (loaded) bar.value = loaded;
        else if (ready) resolve();
        else if (!id) reject(new Refused(error));
        else finish(id, answer, error);
      };
    });
  } finally {
    bar.remove();
  }
}

// Return the address of a script that the page holds as base64 of its gzip.
async function script(text) {
  const code = await unpacked(decoded(text));
  return URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
}

function finish(id, answer, error) {
  const request = waiting.get(id);
  waiting.delete(id);
  if (error) request?.reject(Object.assign(new Refused(error), { status: 400 }));
  else request?.resolve(answer);
}
