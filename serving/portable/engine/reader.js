// A reader of images: pixels to a text, and where it looked.

import { search } from "./search.js";
import { tensor } from "./tensors.js";
import { described, makeTokenizer } from "./tokenizers.js";

export class Reader {
  // `model` as `readModel` gives it.
  constructor(model) {
    this.model = model;
    this.target = makeTokenizer(model.target);
  }

  // Read pixels, uint8 (height, width, channels). Returns {text, score, tokens, token_probabilities,
  // weights, hypotheses}: weights are (T, rows, columns), hypotheses {text, score}, the best first.
  read(pixels) {
    const { image: { height, width, channels, regions, longest }, settings } = this.model;
    const { beam_width, num_results = beam_width, length_penalty } = settings;
    const options = { width: beam_width, results: Math.min(num_results, beam_width), penalty: length_penalty };
    const results = search(this.model, { pixels: tensor(pixels, [1, height, width, channels]) }, longest, options)
      .map((hypothesis) => described(this.target, hypothesis));
    const hypotheses = results.map(({ text, score }) => ({ text, score }));
    return { ...results[0], weights: results[0].weights.map((row) => grid(row, regions)), hypotheses };
  }
}

function grid(row, [rows, columns]) {
  return Array.from({ length: rows }, (_, i) => row.slice(i * columns, (i + 1) * columns));
}
