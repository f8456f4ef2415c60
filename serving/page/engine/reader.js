// A reader of images: pixels to a text, and where it looked.

import { search } from "./search.js";
import { tensor } from "./tensors.js";
import { makeTokenizer, said } from "./tokenizers.js";

export class Reader {
  // `model` as `readModel` gives it.
  constructor(model) {
    this.model = model;
    this.target = makeTokenizer(model.target);
  }

  // Read pixels, uint8 (height, width, channels). Returns {text, score, tokens, weights}, of which
  // weights are (T, rows, columns).
  read(pixels) {
    const { image: { height, width, channels, regions, longest }, settings } = this.model;
    const asked = { width: settings.beam_width, results: 1, penalty: settings.length_penalty };
    const [best] = search(this.model, { pixels: tensor(pixels, [1, height, width, channels]) }, longest, asked);
    const found = said(this.target, best);
    return { ...found, weights: found.weights.map((row) => grid(row, regions)) };
  }
}

function grid(row, [rows, columns]) {
  return Array.from({ length: rows }, (_, i) => row.slice(i * columns, (i + 1) * columns));
}
