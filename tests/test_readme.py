"""The code of README, home page and layers' guide runs as it stands, and does what it says."""

from pathlib import Path

import keras
import numpy as np
import pytest

from tests.keras_attention import pages
from tests.keras_attention.helpers import array

ROOT = Path(__file__).parents[1]
PAGES = tuple(ROOT / each for each in ("README.md", "docs/index.md", "docs/guides/layers.md"))
README, HOME, LAYERS = map(pages.blocks, PAGES)


def an_encoder_decoder(names):
    source = np.array([[3, 4, 5, 0], [6, 7, 8, 9]])
    target = np.array([[1, 2, 3], [1, 5, 4]])
    model, looking = names["model"], names["looking"]
    weights = array(looking([source, target]))
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
    assert not weights[0, :, 3].any()  # the padding
    before = array(model([source, target]))
    assert before.shape == (2, 3, 6000)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss)
    words = np.array([[2, 3, 4], [5, 4, 7]])
    losses = model.fit([source, target], words, epochs=2, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    model.save("model.keras")
    again = keras.models.load_model("model.keras")
    after = array(model([source, target]))
    assert np.abs(after - before).max() > 0.01
    np.testing.assert_allclose(array(again([source, target])), after, atol=1e-5)


def a_classifier(names):
    tokens = np.array([[3, 4, 5, 0], [6, 7, 8, 9]])
    assert names["model"](tokens).shape == (2, 3)


def two_decoders(names):
    shapes = [output.shape for output in names["model"].outputs]
    assert shapes == [(None, None, 128), (None, None, 128), (None, None, None)]


def a_saved_model(names):
    states = np.random.default_rng(0).normal(size=(2, 5, 16)).astype("float32")
    mask = np.arange(5) < np.array([[5], [3]])
    expected = array(names["model"]([states, mask]))
    again = keras.models.load_model("model.keras")
    np.testing.assert_allclose(array(again([states, mask])), expected, rtol=1e-4)


def weights_of_a_trained_model(names):
    np.testing.assert_allclose(names["maps"][0, :3].sum(-1), 1, rtol=1e-5)
    assert not names["maps"][0, :, 3].any()  # the padding
    assert Path("attention.png").stat().st_size > 1000


def an_image_reader(names):
    text = np.array([[1, 2, 3], [4, 5, 6]])
    images = np.random.default_rng(0).normal(size=(2, 32, 128, 1))
    logits, weights = names["model"]([images, text])
    assert logits.shape == (2, 3, 40)
    assert weights.shape == (2, 3, 8 * 32)
    assert names["spread"].shape == (None,)


def a_decoder_with_coverage(names):
    encoded = keras.random.normal((2, 7, 20), seed=1)
    mask = keras.ops.ones((2, 7), "bool")
    _, weights = names["model"]([encoded, mask, keras.ops.ones((2, 5), "int32")])
    (found,) = names["model"].losses
    a = keras.ops.convert_to_numpy(weights)
    covered = np.cumsum(a, axis=1) - a
    found = keras.ops.convert_to_numpy(found)
    np.testing.assert_allclose(found, 0.5 * np.minimum(a, covered).sum(-1).mean(), rtol=1e-4)


def a_beam_search(names):
    found = names["found"]
    assert found.ids.shape[:2] == found.scores.shape == (2, 3)


WITH_PADDING = [an_encoder_decoder, a_classifier, two_decoders, a_saved_model]
WITH_PADDING += [weights_of_a_trained_model, a_decoder_with_coverage]
CHECKS = [*WITH_PADDING[:5], an_image_reader, a_decoder_with_coverage, a_beam_search]
EXAMPLES = [*README, *LAYERS]


def test_every_example_has_its_check():
    assert HOME == README
    assert len(EXAMPLES) == len(CHECKS)


@pytest.mark.parametrize("number", range(len(CHECKS)), ids=lambda n: CHECKS[n].__name__)
def test_an_example_runs_as_it_stands(number, untraced, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = pages.run(EXAMPLES[number], f"example {number}")
    assert pages.assert_padding_changes_nothing(names) >= (CHECKS[number] in WITH_PADDING)
    CHECKS[number](names)
