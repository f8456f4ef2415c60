"""The runtime of the page without a server, in Node."""

import json
import shutil
import subprocess

import pytest

from serving.page.files import STATIC
from serving.portable.engine.pack import ENGINE

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="Node is not installed")


def run(script, *arguments, given=None):
    """Run a module's text, importing from `engine` and `static`; return the JSON that it writes."""
    text = script.replace("engine/", f"{ENGINE.as_uri()}/")
    text = text.replace('"static/', f'"{STATIC.as_uri()}/')
    words = [NODE, "--input-type=module", "--eval", text, *map(str, arguments)]
    done = subprocess.run(
        words, input=json.dumps(given), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)
