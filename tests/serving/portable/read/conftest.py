"""A pronouncer of nonsense, and its command."""

import io
import sys

import pytest

from serving.client._translate import main
from tests.serving.conftest import respelled


@pytest.fixture(scope="module")
def model(onnx_translator, tmp_path_factory):
    """A pronouncer of nonsense: a translator whose tokens are letters and phones, p0 and so on."""
    letters = "abcdefghijklmnopqrstuvwxyzé'" + "".join(map(chr, range(0x400, 0x500)))
    phones = [f"p{number}" for number in range(1000)]
    folder = tmp_path_factory.mktemp("pronouncer") / "1"
    return respelled(onnx_translator, folder, letters=letters, symbols=phones)


@pytest.fixture
def run(model, monkeypatch, capfd):
    """Run the command on a text; return its status, lines and what it says beside them."""

    def run(text, *words):
        content = text if isinstance(text, bytes) else text.encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        try:
            status = main(["--local", str(model), *map(str, words)])
        except SystemExit as error:
            status = error.code
        out, err = capfd.readouterr()
        return status, out.splitlines(), err

    return run
