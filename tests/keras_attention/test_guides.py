"""The blocks of the guide to one's own models run as they stand, on every backend."""

import re
from pathlib import Path

import numpy as np
import pytest
from keras import ops

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "own-model.md"


@pytest.fixture(scope="module")
def names():
    """What is there after all blocks, of each block its own."""
    found, names = [], {}
    for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL):
        names = {} if block.startswith("import keras") else dict(names)
        exec(compile(block, str(GUIDE), "exec"), names)
        found.append(names)
    return found


def test_the_classifier_learns_and_its_weights_leave_out_the_padding(names):
    texts, found = names[0]["texts"], names[0]["found"]
    assert names[0]["accuracy"] > 0.9
    assert not found[texts == 0].any()
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-4)
    with_it = (texts == 7).sum(axis=1) == 1
    assert (texts[with_it, found[with_it].argmax(axis=1)] == 7).mean() > 0.9


def test_the_forecast_goes_on_from_itself(names):
    series, forecast = names[2]["series"], names[2]["forecast"]
    variance = series[:, 24:].var()
    assert names[1]["loss"] < 0.2 * variance
    assert forecast.shape == (5, 6, 1)
    shown = names[2]["forecaster"].predict([series[:5, :24], series[:5, 23:29]], verbose=0)
    np.testing.assert_allclose(forecast[:, 0], shown[:, 0], rtol=1e-3, atol=1e-4)


def test_the_reader_weighs_the_cells_of_a_grid(names):
    assert names[3]["logits"].shape == (2, 3, 12)
    np.testing.assert_allclose(names[3]["where"].sum(axis=(2, 3)), 1, rtol=1e-4)


def test_the_search_gives_its_best_first(names):
    scores = ops.convert_to_numpy(names[4]["result"].scores)
    assert scores.shape == (3, 2)
    assert (scores[:, 0] >= scores[:, 1]).all()
