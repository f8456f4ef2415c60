// Runs the model in its own thread, so that typing never waits for the model.
//
// The page sends {load: {text}}, a model's file in base64, or {load: {url}}; then requests {id, path,
// body}, and {cancel: id}. The worker sends {loaded: share}, {ready: true}, {id, answer} and {id,
// error}; {error} without an id means that there is no model.

import { answers } from "./answers.js";
import { readModel } from "./model.js";
import { decoded, unpacked } from "./packed.js";

let paths = null;
const cancelled = new Set();

self.onmessage = async ({ data: { load, id, path, body, cancel } }) => {
  if (cancel) cancelled.add(cancel);
  else if (load) await start(load);
  else await answer(id, path, body);
};

async function start({ text, url }) {
  try {
    const file = text ? decoded(text) : await fetched(url);
    paths = answers(readModel(await unpacked(file)));
    postMessage({ ready: true });
  } catch (error) {
    postMessage({ error: `The model cannot be loaded: ${error.message}` });
  }
}

async function answer(id, path, body) {
  const goOn = async () => {
    await new Promise((resolve) => setTimeout(resolve)); // messages that were sent meanwhile come first
    if (cancelled.has(id)) throw new Error("cancelled");
  };
  try {
    postMessage({ id, answer: await paths[path](body, goOn) });
  } catch (error) {
    postMessage({ id, error: error.message });
  }
  cancelled.delete(id);
}

async function fetched(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`status ${response.status} of ${url}`);
  const size = Number(response.headers.get("content-length"));
  const parts = [];
  let received = 0;
  for (const reader = response.body.getReader(); ;) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    received += value.length;
    if (size) postMessage({ loaded: Math.min(1, received / size) });
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}
