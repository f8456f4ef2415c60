"""The runtime of the page without a server, in Node."""

import atexit
import json
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

from serving.page.files import STATIC
from serving.portable.engine.scripts import ENGINE, named

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="Node is not installed")


CALL = """
import { readFileSync } from "node:fs";
import { NAME } from "MODULE";
const found = JSON.parse(readFileSync(0, "utf8")).map((words) => NAME(...words));
const plain = (_, value) => (ArrayBuffer.isView(value) ? Array.from(value) : value);
process.stdout.write(JSON.stringify(found, plain));
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
