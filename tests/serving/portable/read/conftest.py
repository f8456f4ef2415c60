"""A pronouncer of nonsense, and its command."""

import io
import json
import re
import sys

import pytest

from serving.client._translate import main
from tests.serving.conftest import pronouncer

SHERPA = "vits", "kokoro", "melo", "matcha"


@pytest.fixture(scope="session")
def model(onnx_translator, tmp_path_factory):
    return pronouncer(onnx_translator, tmp_path_factory.mktemp("pronouncer") / "1", "é'")


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


@pytest.fixture
def listed(tmp_path):
    """Write a list of words and phones, "word phones" each; return the options that give it."""

    def write(*rows):
        path = tmp_path / "own.tsv"
        path.write_text("".join(row.replace(" ", "\t", 1) + "\n" for row in rows), "utf-8")
        return "--lexicon", path

    return write


def of_form(form):
    """The options of a format, or of sherpa's for a kind of voice."""
    return ("--format", "sherpa", "--voice", form) if form in SHERPA else ("--format", form)


def parsed(form, lines):
    """Words and phones of a format's lines."""
    if form == "json":
        rows = map(json.loads, lines)
        return [(row["word"], row["phones"]) for row in rows]
    return [tuple(re.split(r"[\t ]", line, maxsplit=1)) for line in lines]
