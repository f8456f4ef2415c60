"""Weights of TensorFlow Addons give here what Addons computed with them.

`addons_gold.json` is of Addons itself: see `addons_gold.py`.
"""

import json
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_attention import (
    AdditiveAttention,
    AttentionRNN,
    MonotonicAttention,
    MultiplicativeAttention,
    addons,
)
from tests.keras_attention.helpers import assert_close, normal

GOLD = json.loads(Path(__file__).with_name("addons_gold.json").read_text())
S, DIM, DV, UNITS, OUT = 5, 3, 4, 6, 5
MECHANISMS = {
    "bahdanau": lambda: AdditiveAttention(4),
    "bahdanau normalized": lambda: AdditiveAttention(4, normalize=True),
    "luong": lambda: MultiplicativeAttention("general"),
    "luong scaled": lambda: MultiplicativeAttention("general", use_scale=True),
    "bahdanau monotonic": lambda: MonotonicAttention(AdditiveAttention(4)),
}
WRAPPERS = {
    "plain": {},
    "layer": {"units": OUT, "activation": None},
    "tanh layer": {"units": OUT},
    "cell output": {},
}


def built(mechanism, wrapper, **options):
    make = keras.layers.GRUCell if wrapper == "plain" else keras.layers.LSTMCell
    layer = AttentionRNN(
        make(UNITS),
        MECHANISMS[mechanism](),
        return_attention_scores=True,
        **{"order": "luong", "input_feeding": True, **WRAPPERS[wrapper], **options},
    )
    layer.build((None, None, DIM), (None, None, DV))
    return layer


def saved(case):
    """The arrays of the checkpoint, by the names that they have in it."""
    arrays = GOLD[case]["saved"].items()
    return {name.removesuffix(addons.SUFFIX): np.array(x, "float32") for name, x in arrays}


@pytest.mark.parametrize("case", GOLD)
def test_a_wrapper_of_addons_computes_the_same_here(case):
    mechanism, wrapper = case.split(", ")
    layer, gold = built(mechanism, wrapper), GOLD[case]
    addons.load_weights(layer, saved(case))
    mask = np.arange(S) < np.array(gold["lengths"])[:, None]
    inputs, memory = np.array(gold["inputs"], "float32"), np.array(gold["memory"], "float32")
    outputs, weights = layer(inputs, memory, memory_mask=mask)
    parts = {"plain": outputs[..., :DV], "cell output": outputs[..., DV:]}
    assert_close(parts.get(wrapper, outputs), np.array(gold["outputs"]), 1e-4)
    assert_close(weights, np.array(gold["weights"]), 1e-4)


def test_a_checkpoint_is_read_by_its_prefix(rng, tmp_path):
    import tensorflow as tf

    inner = tf.Module()
    inner.attention_v = tf.Variable(normal(rng, 4))
    path = tf.train.Checkpoint(model=inner).save(str(tmp_path / "ckpt"))
    found = addons.read_checkpoint(path, "model/")
    assert_close(found["attention_v"], inner.attention_v.numpy())
    with pytest.raises(ValueError, match=r"begin with 'decoder/'.*Received: .*model"):
        addons.read_checkpoint(path, "decoder/")


CASE = "luong, layer"
BAD = {
    "order": (lambda: addons.load_weights(built("luong", "layer", order="bahdanau"), {}), "luong"),
    "missing": (lambda: addons.load_weights(built("luong", "layer"), {}), "memory_layer/kernel"),
    "shape": (
        lambda: addons.load_weights(built("luong", "plain"), saved(CASE)),
        "of a form that gives",
    ),
    "unbuilt": (lambda: addons.load_weights(AdditiveAttention(3), {}), "a built layer"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_told(case):
    make, expected = BAD[case]
    with pytest.raises(ValueError, match=r" expected .*Received: ") as error:
        make()
    assert expected in str(error.value)


@pytest.mark.parametrize(
    ("case", "mechanism", "said"),
    [
        ("bahdanau normalized", "bahdanau", "normalize=True"),
        ("luong scaled", "luong", "use_scale=True"),
        ("bahdanau monotonic", "bahdanau normalized", "a score bias"),
    ],
)
def test_weights_that_the_layer_has_no_place_for_are_told(case, mechanism, said):
    name = next(name for name in GOLD if name.startswith(f"{case}, "))
    layer = built(mechanism, name.partition(", ")[2])
    with pytest.raises(ValueError, match=f"load_weights expected a layer with .*{said}"):
        addons.load_weights(layer, saved(name))
