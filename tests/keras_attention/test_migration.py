"""The guide's code runs as it stands, and the models in it learn."""

import re
from pathlib import Path

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


def test_scheduled_sampling_without_samples_is_teacher_forcing():
    names = run("scheduled(probability)")
    assert array(names["mixed"]).shape == (3, 4, 10)
    forced, stepped = array(names["forced"]), array(names["scheduled"](0.0))
    np.testing.assert_allclose(stepped, forced, rtol=1e-5, atol=1e-5)
    own = array(names["scheduled"](1.0))
    np.testing.assert_allclose(own[:, 0], forced[:, 0], rtol=1e-5, atol=1e-5)
    # Each further token read is the one that was written before.
    written = np.argmax(own, axis=-1)[:, :-1]
    read = np.concatenate([names["target"][:, :1], written], axis=1)
    again = names["decoder"](names["embedding"](read), names["encoded"], memory_mask=names["mask"])
    np.testing.assert_allclose(own, array(names["output"](again)), rtol=1e-5, atol=1e-5)
