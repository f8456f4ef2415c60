"""Milliseconds a sentence of the page without a server, and how its texts compare.

    python benchmarks/page_speed.py --models demo/en-fr/onnx/en-fr --pair en-fr
    python benchmarks/page_speed.py --untrained 512 --sentences 50 --chromium

Models are exports with --format onnx. By Node, which has the engine of Chromium; with --chromium in
that, headless, where no time of the processor is known. Texts are sentences of the phrasebook's
test split, or the lines of a file. --untrained takes an LSTM of so many units with random weights
in eight bits, a vocabulary of 8,000 and sentences of 3 words, of which each translation has 16.
"""

import argparse
import base64
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from serving.client.local import LocalTranslator
from serving.client.local.model import Folder
from serving.page.files.model import pack
from serving.page.files.pages import ENGINE
from training.data import corpus

WIDTHS = {"greedy": 1, "beam 5": 5}
HOW = ("vectors", "loops")
WARM = 50  # texts before the clock runs: JavaScript is compiled as it runs
IMPORTS = """
import { readModel } from "engine/model.js";
import { makeProducts } from "engine/products.js";
import { Translator } from "engine/translator.js";
"""
RUN = """
const run = (buffer, { texts, width, vectors, warm }, clock = () => null) => {
  const translator = new Translator(readModel(buffer, makeProducts(vectors)));
  const search = (text) => translator.search(text, { beam_width: width, num_results: 1 });
  texts.slice(0, warm).forEach(search);
  const [wall, found, before] = [[], [], clock()];
  for (const text of texts) {
    const start = performance.now();
    found.push(search(text).hypotheses[0].text);
    wall.push(performance.now() - start);
  }
  return { wall, found, processor: clock() - before };
};
"""
BY_NODE = """
import { readFileSync } from "node:fs";
const given = JSON.parse(readFileSync(0, "utf8"));
const clock = () => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
};
const out = run(Uint8Array.from(Buffer.from(given.file, "base64")).buffer, given, clock);
process.stdout.write(JSON.stringify(out));
"""
PAGE, HTML = "http://page.test/", '<script type="module" src="page.js"></script>'


def by_node(packed: bytes, given: dict[str, Any]) -> dict[str, Any]:
    """Run the engine in Node."""
    script = IMPORTS.replace("engine/", f"{ENGINE.as_uri()}/") + RUN + BY_NODE
    done = subprocess.run(
        ["node", "--input-type=module", "--eval", script],
        input=json.dumps({**given, "file": base64.b64encode(packed).decode()}),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def by_chromium(packed: bytes, given: dict[str, Any]) -> dict[str, Any]:
    """Run the engine in headless Chromium, on a page that Playwright answers for."""
    from playwright.sync_api import Route, sync_playwright

    scripts = {path.name: path.read_text(encoding="utf-8") for path in ENGINE.glob("*.js")}
    scripts["page.js"] = IMPORTS.replace("engine/", "/") + RUN + "window.run = run;"

    def answer(route: Route) -> None:
        name = route.request.url.rpartition("/")[2]
        if name == "model.bin":
            route.fulfill(body=packed, content_type="application/octet-stream")
        elif name in scripts:
            route.fulfill(body=scripts[name], content_type="text/javascript")
        else:
            route.fulfill(body=HTML, content_type="text/html")

    with sync_playwright() as playwright:
        chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.set_default_timeout(600_000)
        page.route("**/*", answer)
        page.goto(PAGE)
        page.wait_for_function("Boolean(window.run)")
        asked = "async (given) => run(await (await fetch('/model.bin')).arrayBuffer(), given)"
        found: dict[str, Any] = page.evaluate(asked, given)
        browser.close()
    return found


def measure(
    folder: Folder, texts: list[str], width: int, vectors: bool, chromium: bool
) -> dict[str, float]:
    """Return milliseconds of the wall clock and of the processor, and the share of equal texts."""
    packed = pack(folder.path, folder.manifest, {})
    given = {"texts": texts, "width": width, "vectors": vectors, "warm": WARM}
    found = (by_chromium if chromium else by_node)(packed, given)
    local = LocalTranslator(folder.path, beam_width=width, num_results=1).translate(texts)
    same = [text == one.text for text, one in zip(found["found"], local, strict=True)]
    row = {"median_ms": round(statistics.median(found["wall"]), 2), "same": statistics.mean(same)}
    if found["processor"]:
        row["processor_ms"] = round(found["processor"] / len(texts), 2)
    return row


def export_untrained(units: int, folder: Path) -> list[str]:
    """Write a model of random weights; return sentences for it."""
    from parts.translation import untrained_run, words

    from serving.export.onnx.folder import write_folder

    options = argparse.Namespace(units=units, vocabulary=8000, seed=7)
    settings = {"beam_width": 5, "num_results": 1, "length_penalty": 1.0, "weights": "int8"}
    folder.mkdir()
    more = {"max_source_length": 256, "tables": False}
    write_folder([untrained_run(folder, options)], folder, {**settings, **more}, {"versions": {}})
    chosen = np.random.default_rng(7).choice(words(options), (500, 3))
    return [" ".join(row) for row in chosen]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--models", nargs="+", type=Path, metavar="DIR")
    which.add_argument("--untrained", type=int, metavar="UNITS", help="of random weights")
    parser.add_argument("--pair", default="en-fr", help="of the phrasebook; default: en-fr")
    parser.add_argument("--texts", type=Path, metavar="FILE", help="lines in place of a phrasebook")
    parser.add_argument("--sentences", type=int, default=500)
    parser.add_argument("--chromium", action="store_true", help="in place of Node")
    options = parser.parse_args()
    if shutil.which("node") is None and not options.chromium:
        sys.exit("error: node is not installed")
    rows = {}
    with tempfile.TemporaryDirectory() as temporary:
        models, folder = options.models, Path(temporary) / "untrained"
        if options.untrained:
            texts, models = export_untrained(options.untrained, folder), [folder]
        elif options.texts:
            texts = options.texts.read_text(encoding="utf-8").splitlines()
        else:
            texts = corpus.load(f"phrasebook-{options.pair}", "test").sources
        texts = texts[: options.sentences]
        for path, (mode, width), how in itertools.product(models, WIDTHS.items(), HOW):
            row = measure(Folder(path), texts, width, how == "vectors", options.chromium)
            rows[f"{path}, {mode}, {how}"] = row
            print(f"{path}, {mode}, {how}:", *(f"{x} {value}" for x, value in row.items()))
    print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
