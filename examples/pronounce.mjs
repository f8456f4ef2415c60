// Pronounces words with a pronouncer of your own, from its ONNX folder.
//
//   Node:    npm install --ignore-scripts onnxruntime-node
//            node examples/pronounce.mjs models/mine-onnx/1 choir "a long word"
//   browser: import * as ort from "onnxruntime-web";
//            import { load } from "./pronounce.mjs";
//            const file = (name) => fetch(`model/${name}`).then((response) => response.arrayBuffer());
//            const pronounce = await load(ort, file);
//            (await pronounce("choir")).phones.join(" ");

// Return the function that pronounces a word. `ort` is ONNX Runtime; `file` returns the bytes of a file.
export async function load(ort, file) {
  const json = async (name) => JSON.parse(new TextDecoder().decode(await file(name)));
  const { settings, spelling, tokenizers } = await json("manifest.json");
  const [source, target] = await Promise.all([json(tokenizers.source.file), json(tokenizers.target.file)]);
  const externalData = [{ path: "weights.bin", data: new Uint8Array(await file("weights.bin")) }];
  const session = await ort.InferenceSession.create(new Uint8Array(await file("translator.onnx")), { externalData });
  const ids = new Map(source.tokens.map((token, place) => [token, place + 4])); // 0 to 3 are special
  const small = source.cases ?? {};
  const numbers = (values, dims) => new ort.Tensor("int64", BigInt64Array.from(values.map(BigInt)), dims);

  function lettersOf(word) {
    let text = word.replaceAll("\ufeff", "").normalize("NFC").trim();
    if (source.kind === "letters") text = text.normalize("NFD");
    for (const capital in small) if ([...capital].length > 1) text = text.replaceAll(capital, small[capital]);
    if (small["Σ"] && ids.has("ς")) text = text.replace(/(?<=[\p{L}\p{M}])Σ(?![\p{L}\p{M}])/gu, "ς");
    return [...text].map((x) => ids.get(x) ?? ids.get(small[x] ?? x.toLowerCase()) ?? 1).slice(0, settings.max_source_length);
  }

  // Return how many ids in front of a word are its tag, such as "[cy] ".
  function tagOf(letters) {
    const tag = spelling?.tag;
    const close = tag && letters[0] === tag.open ? letters.indexOf(tag.close) : -1;
    const size = close + 1 + (letters[close + 1] === tag?.space);
    return close > 0 && size <= tag.longest && size < letters.length ? size : 0;
  }

  // Return the best answer to letters: {score, steps}, a step for each token with its attention weights.
  async function ask(letters) {
    const out = await session.run({
      ids: numbers(letters, [1, letters.length]),
      beam_width: numbers([settings.beam_width], [1]),
      num_results: numbers([1], [1]),
      length_penalty: new ort.Tensor("float32", [settings.length_penalty], []),
      with_weights: new ort.Tensor("bool", [1], [1]),
    });
    const { found: { data: found }, weights: { data: weights, dims }, log_probs: { data: logProbs } } = out;
    const width = dims[3];
    const steps = [...found].map((id, t) => ({ id: Number(id), logProb: logProbs[t], weights: weights.slice(t * width, (t + 1) * width) }));
    return { score: out.scores.data[0], steps: steps.slice(0, 1 + steps.findIndex(({ id }) => id === 3) || steps.length) };
  }

  return async (word) => {
    const letters = lettersOf(word);
    const tag = tagOf(letters);
    const size = letters.length - tag;
    const firsts = [0]; // of the letters that each window decides
    if (spelling && size > spelling.whole) {
      const { window, context } = spelling;
      for (let at = window - context; at < size - context; at += window - 2 * context) firsts.push(at);
    }
    const [kept, scores] = [[], []];
    for (const [n, first] of (size ? firsts : []).entries()) {
      const end = firsts[n + 1] ?? size;
      const context = firsts.length > 1 ? spelling.context : 0;
      const start = Math.max(0, first - context);
      const own = letters.slice(tag + start, tag + end + context);
      const { score, steps } = await ask([...letters.slice(0, tag), ...own]);
      scores.push(score);
      for (const step of steps) {
        const place = start + Math.max(0, step.weights.indexOf(Math.max(...step.weights)) - tag);
        const inside = firsts.length === 1 || (place >= first && place < end);
        if (step.id === 3 ? end === size : step.id > 3 && inside) kept.push(step);
      }
    }
    return {
      phones: kept.filter(({ id }) => id > 3).map(({ id }) => target.tokens[id - 4]),
      score: scores.reduce((sum, score) => sum + score, 0) / Math.max(1, scores.length),
      probability: Math.exp(kept.reduce((sum, { logProb }) => sum + logProb, 0)), // of all phones and the end
    };
  };
}

const started = globalThis.process?.argv[1]?.split(/[\\/]/).at(-1); // the program that Node runs
if (started && decodeURI(import.meta.url).endsWith(`/${started}`)) {
  const { readFile } = await import("node:fs/promises");
  const ort = await import("onnxruntime-node");
  const [folder, ...words] = process.argv.slice(2);
  const pronounce = await load(ort.default ?? ort, (name) => readFile(`${folder}/${name}`));
  for (const word of words) {
    const { phones, probability } = await pronounce(word);
    console.log(`${word}\t${phones.join(" ")}\t${probability.toFixed(4)}`);
  }
}
