// A model's file: {header} as JSON, and the numbers that it points at.

import { Graph } from "./graph.js";
import { makeProducts } from "./products.js";

const LENGTH = 4; // bytes that say how long the header is

// Return the model in a file (an ArrayBuffer), as `serving.portable.engine._pack` writes it.
export function readModel(buffer, products = makeProducts()) {
  const size = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, LENGTH, size)));
  const numbers = buffer.slice(LENGTH + size);
  const laid = new Map();
  const [encoder, step] = ["encoder", "step"].map((name) => new Graph(header.graphs[name], numbers, products, laid));
  const [source, target] = [header.source, header.target].map((about) => (
    about?.kind === "sentencepiece" ? withNumbers(about, numbers) : about));
  return { ...header, encoder, step, source, target };
}

// Return a SentencePiece model with typed arrays in place of [offset, count] of its numbers.
export function withNumbers({ scores, types, rules, ...about }, numbers) {
  return {
    ...about,
    scores: new Float32Array(numbers, ...scores),
    types: new Uint8Array(numbers, ...types),
    rules: new Uint8Array(numbers, ...rules),
  };
}
