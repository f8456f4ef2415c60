"""Milliseconds a sentence of the page without a server, by Node, and how its texts compare.

    python benchmarks/page_speed.py --models demo/en-fr/onnx/en-fr --pair en-fr

Models are exports with --format onnx; Node has the engine of Chromium. Texts are sentences of the
phrasebook's test split, or the lines of a file.
"""

import argparse
import base64
import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

from serving.client.local import LocalTranslator
from serving.client.local.model import Folder
from serving.page.files.model import pack
from serving.page.files.pages import ENGINE
from training import phrasebook

WIDTHS = {"greedy": 1, "beam 5": 5}
WARM = 50  # texts before the clock runs: JavaScript is compiled as it runs
SCRIPT = """
import { readFileSync } from "node:fs";
import { readModel } from "engine/model.js";
import { makeProducts } from "engine/products.js";
import { Translator } from "engine/translator.js";
const { file, texts, width, vectors, warm } = JSON.parse(readFileSync(0, "utf8"));
const buffer = Uint8Array.from(Buffer.from(file, "base64")).buffer;
const translator = new Translator(readModel(buffer, makeProducts(vectors)));
const search = (text) => translator.search(text, { beam_width: width, num_results: 1 });
texts.slice(0, warm).forEach(search);
const [wall, found] = [[], []];
const before = process.cpuUsage();
for (const text of texts) {
  const start = performance.now();
  found.push(search(text).hypotheses[0].text);
  wall.push(performance.now() - start);
}
const { user, system } = process.cpuUsage(before);
process.stdout.write(JSON.stringify({ wall, found, processor: (user + system) / 1000 }));
"""


def measure(folder: Folder, texts: list[str], width: int, vectors: bool) -> dict[str, float]:
    """Return milliseconds of the wall clock and of the processor, and the share of equal texts."""
    file = base64.b64encode(pack(folder.path, folder.manifest, {})).decode()
    given = {"file": file, "texts": texts, "width": width, "vectors": vectors, "warm": WARM}
    script = SCRIPT.replace("engine/", f"{ENGINE.as_uri()}/")
    done = subprocess.run(
        ["node", "--input-type=module", "--eval", script],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    local = LocalTranslator(folder.path, beam_width=width, num_results=1).translate(texts)
    same = [text == one.text for text, one in zip(found["found"], local, strict=True)]
    return {
        "median_ms": round(statistics.median(found["wall"]), 2),
        "processor_ms": round(found["processor"] / len(texts), 2),
        "same": statistics.mean(same),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", type=Path, required=True, metavar="DIR")
    parser.add_argument("--pair", default="en-fr", help="of the phrasebook; default: en-fr")
    parser.add_argument("--texts", type=Path, metavar="FILE", help="lines in place of a phrasebook")
    parser.add_argument("--sentences", type=int, default=500)
    options = parser.parse_args()
    if shutil.which("node") is None:
        sys.exit("error: node is not installed")
    if options.texts:
        texts = options.texts.read_text(encoding="utf-8").splitlines()[: options.sentences]
    else:
        drawn = phrasebook.generate(options.pair, "test", options.sentences, 7)
        texts = [sample.source for sample in drawn]
    rows = {}
    for path in options.models:
        for mode, width in WIDTHS.items():
            for how in ("vectors", "loops"):
                row = measure(Folder(path), texts, width, how == "vectors")
                rows[f"{path}, {mode}, {how}"] = row
                print(
                    f"{path}, {mode}, {how}: median {row['median_ms']:.2f} ms, processor "
                    f"{row['processor_ms']:.2f} ms, {row['same']:.1%} of texts as LocalTranslator's"
                )
    print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
