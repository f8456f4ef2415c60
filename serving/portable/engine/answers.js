// Answers the page's requests to a model, as `serving.page._app` does.

import { readImage } from "./pixels.js";
import { Reader } from "./reader.js";
import { MOST_SENTENCES } from "./rules.js";
import { splitSentences } from "./sentences.js";
import { Translator } from "./translator.js";

const MOST_SEARCHES = 500; // cached sentences: the page requests each twice, for the text and for the weights

// Return an async function for each path. It takes a request and `goOn`, an async function that lets
// other messages in, and throws if the request is cancelled.
export function answers(model) {
  return { "api/model": async () => model.page, ...(model.image ? ofImages(model) : ofTexts(model)) };
}

function ofImages(model) {
  const reader = new Reader(model);
  return {
    "api/read": async (image) => {
      const reading = reader.read(await readImage(image, model.image));
      return model.attends ? reading : { ...reading, weights: [] };
    },
  };
}

function ofTexts(model) {
  const translator = new Translator(model);
  const searches = new Map();
  const search = (text) => {
    if (searches.size > MOST_SEARCHES) searches.clear();
    if (!searches.has(text)) searches.set(text, translator.search(text));
    return searches.get(text);
  };
  const each = async (texts, goOn, answer) => {
    if (texts.length > MOST_SENTENCES) {
      throw new Error(`Give at most ${MOST_SENTENCES} sentences at once. These are ${texts.length}`);
    }
    const sentences = [];
    for (const text of texts) {
      await goOn();
      sentences.push(answer(search(text)));
    }
    return sentences;
  };
  return {
    "api/translate": async ({ text }, goOn) => {
      const pieces = splitSentences(text, model.sentences);
      const results = await each(pieces.map(([source]) => source), goOn, (result) => result);
      const sentences = results.map(({ hypotheses: [{ text, score }], truncated, unknown, ...sure }, i) => {
        const [source, gap] = pieces[i];
        const { words, word_probabilities } = sure;
        return { source, gap, text, score, truncated, unknown, words, word_probabilities };
      });
      return { sentences };
    },
    "api/look": async ({ texts }, goOn) => ({
      sentences: await each(texts, goOn, ({ tokens, hypotheses }) => ({
        alignment: model.attends ? { source: tokens, target: hypotheses[0].tokens, weights: hypotheses[0].weights } : null,
        hypotheses: hypotheses.filter(({ score }) => score > -Infinity).map(({ text, score }) => ({ text, score })),
      })),
    }),
  };
}
