"""The guide's code runs as it stands, and the models in it learn."""

import re
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_attention
from tests.keras_attention.helpers import array
from tests.keras_attention.padding import assert_padding_changes_nothing

GUIDE = (Path(__file__).parents[2] / "docs" / "migration.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)


def run(word):
    """Run the one block that holds the word; return its names."""
    (block,) = [block for block in BLOCKS if word in block]
    names = {}
    exec(compile(block, f"migration.md, {word}", "exec"), names)
    return names


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_runs_as_it_stands(number):
    names = {}
    exec(compile(BLOCKS[number], f"migration.md, block {number}", "exec"), names)
    assert_padding_changes_nothing(names)


def test_every_name_of_the_tables_exists():
    rows = [line for line in GUIDE.splitlines() if line.startswith("| `") and "|" in line]
    assert len(rows) > 20
    new = " ".join(row.split(" | ")[1] for row in rows)
    for name in re.findall(r"\b([A-Z]\w+Attention|\w+_search|AttentionRNN|\w+Pooling)\b", new):
        assert hasattr(keras_attention, name), name


def learns(model, inputs, target, epochs=8):
    """Train; return the losses of the first and of the last epoch."""
    model.compile(
        keras.optimizers.Adam(0.02),
        loss=[keras.losses.SparseCategoricalCrossentropy(from_logits=len(model.outputs) > 1)]
        + [None] * (len(model.outputs) - 1),
    )
    target = [target, None][: len(model.outputs)] if len(model.outputs) > 1 else target
    history = model.fit(inputs, target, epochs=epochs, verbose=0).history["loss"]
    return history[0], history[-1]


def test_the_classifier_learns_and_shows_what_it_looked_at():
    names = run("AttentionPooling(32)")
    rng = np.random.default_rng(3)
    words = rng.integers(4, 100, size=(96, 11))
    label = rng.integers(0, 3, size=96)
    words[np.arange(96), rng.integers(0, 8, size=96)] = 1 + label  # one word tells the class
    words[:, 9:] = 0
    first, last = learns(names["model"], words, label)
    assert last < 0.5 * first
    predicted, weights = (array(x) for x in names["explain"](words))
    assert weights.shape == (96, 11)
    assert not weights[:, 9:].any()
    assert (predicted.argmax(-1) == label).mean() > 0.8


@pytest.mark.parametrize("word", ["doubly_stochastic", "CoverageAttention(32)"])
def test_the_decoder_learns_with_its_loss(word):
    model = run(word)["model"]
    rng = np.random.default_rng(3)
    target = rng.integers(1, 5, size=(8, 6))
    first = rng.normal(size=(8, 32, 32, 3)) if "image" in run(word) else target
    before, after = learns(model, [first, target[:, :-1]], target[:, 1:])
    assert after < before
    model([first, target[:, :-1]])
    assert len(model.losses) == 1
