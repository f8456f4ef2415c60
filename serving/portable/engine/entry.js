// The engine for pages and programs of your own. `serving.page --static` writes it as `engine.js`, with its
// types in `engine.d.ts` and the model in `model.bin`.

import { readModel } from "./model.js";
import { unpacked } from "./packed.js";
import { readImage } from "./pixels.js";
import { Reader } from "./reader.js";
import { Translator } from "./translator.js";

// Return the model in `model.bin`, given its address or its bytes.
export async function load(source) {
  const isAddress = typeof source === "string" || source instanceof URL;
  const bytes = isAddress ? await fetched(source) : source;
  const model = readModel(await unpacked(new Uint8Array(bytes)));
  return model.image ? { image: model.image, reader: new Reader(model) } : { translator: new Translator(model) };
}

// Return the best answer to a text, with the N best as `hypotheses`.
export function translate({ translator }, text) {
  if (!translator) throw new TypeError("translate needs a model of texts, but this one reads images");
  const { hypotheses, ...found } = translator.search(text);
  const { text: best, score } = hypotheses[0];
  return { text: best, score, ...found, hypotheses };
}

// Return the text in an image, a Blob of a PNG or JPEG file; only in browsers, which decode it.
export async function read({ reader, image }, blob) {
  if (!reader) throw new TypeError("read needs a model of images, but this one reads texts");
  return reader.read(await readImage(blob, image));
}

async function fetched(address) {
  const response = await fetch(address);
  if (!response.ok) throw new Error(`status ${response.status} of ${address}`);
  return response.arrayBuffer();
}
