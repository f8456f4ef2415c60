/** A model that `load` returned. */
declare const brand: unique symbol;
export interface Model { readonly [brand]: true }

export interface Hypothesis {
  text: string;
  /** Sum of the tokens' log-probabilities, divided by the length penalty. */
  score: number;
  tokens: string[];
  token_probabilities: number[];
  /** A row for each token: a weight for each token of the source. Empty without attention. */
  weights: number[][];
}

export interface Translation {
  text: string;
  score: number;
  /** The tokens of the source. */
  tokens: string[];
  /** Whether the text is longer than the model reads. */
  truncated: boolean;
  /** Letters that training never saw. */
  unknown: string;
  words: string[];
  word_probabilities: number[];
  /** The N best answers of the export, best first. */
  hypotheses: Hypothesis[];
}

export interface Reading {
  text: string;
  score: number;
  tokens: string[];
  token_probabilities: number[];
  /** For each token, a grid of weights over the image. */
  weights: number[][][];
}

/** Load `model.bin`, given its address or its bytes. */
export function load(source: string | URL | ArrayBuffer | Uint8Array): Promise<Model>;

/** Translate or pronounce a text. Long words of pronouncers are read in windows. */
export function translate(model: Model, text: string): Translation;

/** Read the text in a PNG or JPEG file; only in browsers, which decode it. */
export function read(model: Model, image: Blob): Promise<Reading>;
