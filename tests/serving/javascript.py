"""The runtime of the page without a server, in Node."""

import atexit
import base64
import json
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

from serving.page._files import STATIC
from serving.portable.engine._pack import pack
from serving.portable.engine._scripts import ENGINE, named

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="Node is not installed")


CALL = """
import { readFileSync } from "node:fs";
import { NAME } from "MODULE";
const found = JSON.parse(readFileSync(0, "utf8")).map((words) => NAME(...words));
const plain = (_, value) => (ArrayBuffer.isView(value) ? Array.from(value) : value);
process.stdout.write(JSON.stringify(found, plain));
"""
MODEL = """
import { readFileSync } from "node:fs";
import { readModel } from "engine/model.js";
import { Reader } from "engine/reader.js";
import { Translator } from "engine/translator.js";
const { file, texts, images } = JSON.parse(readFileSync(0, "utf8"));
const model = readModel(Uint8Array.from(Buffer.from(file, "base64")).buffer);
const found = images ? images.map((pixels) => new Reader(model).read(Uint8Array.from(pixels)))
  : texts.map((text) => new Translator(model).search(text, {}));
process.stdout.write(JSON.stringify(found));
"""
WHOLE = """
import { readFileSync } from "node:fs";
import { refusal } from "engine/whole.js";
const read = (text) => new Uint8Array(Buffer.from(text, "base64"));
const files = JSON.parse(readFileSync(0, "utf8")).map(read);
process.stdout.write(JSON.stringify(await Promise.all(files.map(refusal))));
"""


@cache
def modules():
    """Return the address of a folder of all modules, as the page's build names them."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    for name, source in {"engine": ENGINE, "static": STATIC}.items():
        (folder / name).mkdir()
        for stem, text in named(source.glob("*.js")).items():
            (folder / name / f"{stem}.js").write_text(text, encoding="utf-8")
    (folder / "package.json").write_text('{"type": "module"}')
    return folder.as_uri()


def run(script, *arguments, given=None):
    """Run a module's text, importing from `engine` and `static`; return the JSON that it writes."""
    text = script.replace('"engine/', f'"{modules()}/engine/')
    text = text.replace('"static/', f'"{modules()}/static/')
    words = [NODE, "--input-type=module", "--eval", text, *map(str, arguments)]
    done = subprocess.run(
        words, input=json.dumps(given), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def call(module, name, given):
    """Call a function of a module with each of these lists of arguments; return what it returns."""
    return run(CALL.replace("NAME", name).replace("MODULE", module), given=given)


@cache
def packed(version):
    """Return the model of an export as a page has it, in base64."""
    manifest = json.loads((version / "manifest.json").read_text())
    return base64.b64encode(pack(version, manifest, {})).decode()


def ask_model(version, **asked):
    """Return what the page's engine answers of an export to `texts`, or to the pixels `images`."""
    return run(MODEL, given={"file": packed(version), **asked})


def refusals(files):
    """Return why the page cannot read each file of an image, "" if it can."""
    return run(WHOLE, given=[base64.b64encode(file).decode() for file in files])
