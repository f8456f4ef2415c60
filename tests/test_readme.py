"""The code of README, home page and layers' guide runs as it stands; padding changes no answer."""

from pathlib import Path

import keras
import numpy as np
import pytest

from tests.keras_attention import pages
from tests.keras_attention.helpers import array, assert_close

ROOT = Path(__file__).parents[1]
PAGES = tuple(ROOT / each for each in ("README.md", "docs/index.md", "docs/guides/layers.md"))
README, HOME, LAYERS = map(pages.blocks, PAGES)
# Of README's example and each of the guide's, how many models read sequences that may be padded.
EXAMPLES = [*zip([*README, *LAYERS], (2, 1, 1, 2, 1, 0, 0), strict=True)]


def test_the_home_page_has_the_example_of_the_readme():
    assert HOME == README


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs_as_it_stands(number, untraced, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example, padded = EXAMPLES[number]
    names = pages.run(example, f"example {number}")
    assert pages.assert_padding_changes_nothing(names) == padded
    if number == 0:
        assert_learns_and_is_saved(names["model"])


def assert_learns_and_is_saved(model):
    source = np.array([[3, 4, 5, 0], [6, 7, 8, 9]])
    target = np.array([[1, 2, 3], [1, 5, 4]])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss)
    losses = model.fit([source, target], target, epochs=2, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    model.save("model.keras")
    again = keras.models.load_model("model.keras")
    assert_close(again([source, target]), array(model([source, target])))
