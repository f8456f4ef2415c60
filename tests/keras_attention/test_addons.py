"""Weights of TensorFlow Addons give here what Addons computed with them.

`addons_gold.json` is of Addons itself, 0.23.0 on TensorFlow 2.15.1: `addons_gold.py` beside it, in
commit 07067a9a, recorded it. Addons ended in 2024.
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


def wrong(mechanism, wrapper, case=None, **options):
    """Load the checkpoint of a case, or none, into another decoder."""
    addons.load_weights(built(mechanism, wrapper, **options), saved(case) if case else {})


BAD = {
    "luong": lambda: wrong("luong", "layer", order="bahdanau"),
    "memory_layer/kernel": lambda: wrong("luong", "layer"),
    "of a form that gives": lambda: wrong("luong", "plain", "luong, layer"),
    "a built layer": lambda: addons.load_weights(AdditiveAttention(3), {}),
    "normalize=True": lambda: wrong("bahdanau", "plain", "bahdanau normalized, plain"),
    "use_scale=True": lambda: wrong("luong", "plain", "luong scaled, plain"),
    "a score bias": lambda: wrong("bahdanau normalized", "plain", "bahdanau monotonic, plain"),
}


@pytest.mark.parametrize("told", BAD)
def test_what_does_not_fit_is_told(told):
    with pytest.raises(ValueError, match=r" expected .*Received: ") as error:
        BAD[told]()
    assert told in str(error.value)
