"""The engine as a module for programs of one's own, in Node."""

import json
import subprocess

import pytest

from serving.page._files import write
from serving.portable.read import LocalTranslator
from tests.serving.javascript import NODE, needs_node

ASK = """
import { readFile } from "node:fs/promises";
import * as engine from "SITE/engine.js";
const model = await engine.load(await readFile(new URL("SITE/model.bin")));
const found = ["He sleeps.", "", "She is eating."].map((text) => engine.translate(model, text));
const refused = await engine.read(model, new Blob([])).catch((error) => error.message);
console.log(JSON.stringify({ names: Object.keys(engine).sort(), found, refused }));
"""


@needs_node
def test_the_entry_translates_as_python(versions, tmp_path):
    write(versions["float32"], tmp_path / "site", single=False)
    (tmp_path / "site" / "package.json").write_text('{"type": "module"}')
    script = ASK.replace("SITE", (tmp_path / "site").as_uri())
    words = [NODE, "--input-type=module", "--eval", script]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    answer = json.loads(done.stdout)
    assert answer["names"] == ["load", "read", "translate"]
    types = (tmp_path / "site" / "engine.d.ts").read_text()
    assert all(f"export function {name}(" in types for name in answer["names"])
    assert answer["refused"] == "read needs a model of images, but this one reads texts"
    wanted = LocalTranslator(versions["float32"]).translate(["He sleeps.", "", "She is eating."])
    for one, other in zip(answer["found"], wanted, strict=True):
        assert one["text"] == other.text == one["hypotheses"][0]["text"]
        assert one["score"] == pytest.approx(other.score, abs=1e-4)
