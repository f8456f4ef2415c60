"""In float64 everything is as exact as float64 is: against NumPy, to twelve digits.

On TensorFlow alone: products of `keras.ops` are in float32 on PyTorch, and JAX has float64 where a
whole process has it.
"""

import keras
import numpy as np
import pytest

from keras_attention import (
    AdditiveAttention,
    AttentionRNN,
    HoistedRNN,
    mechanisms,
)
from tests.keras_attention import reference, test_attention, test_mechanisms, zoo
from tests.keras_attention.helpers import array, assert_close, mask, randomize, weights_of

EXACT = 1e-12
pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="of TensorFlow alone"
)


@pytest.fixture(autouse=True)
def float64():
    """Make float64 the type of all layers, for the length of a test."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_dtype_policy(before)


def normal(rng, *shape):
    return rng.normal(size=shape)


@pytest.mark.parametrize(
    ("name", "distribution"),
    [
        *((name, "softmax") for name in test_attention.LAYERS),
        *(("additive", distribution) for distribution in ("sparsemax", "entmax15")),
    ],
)
def test_scores_and_distributions(rng, name, distribution):
    t = test_attention
    width = t.DV if name in ("dot", "scaled_dot") else t.DQ
    layer, score = t.built(t.LAYERS[name](distribution=distribution), rng, width)
    query, value = normal(rng, t.B, t.TQ, width), normal(rng, t.B, t.TV, t.DV)
    allowed = mask(rng, t.B, t.TQ, t.TV)
    weigh = getattr(reference, distribution)
    expected = reference.attend(score, query, value, mask=allowed, distribution=weigh)
    found = layer(query, value, attention_mask=allowed, return_attention_scores=True)
    assert_close(found, expected, EXACT)


@pytest.mark.parametrize("name", test_mechanisms.CASES)
def test_mechanisms_with_places_and_a_past(rng, name):
    t = test_mechanisms
    layer = t.built(t.CASES[name][0], rng)
    query, memory = normal(rng, t.B, t.TQ, t.DQ), normal(rng, t.B, t.TV, t.DV)
    valid, present = mask(rng, t.B, t.TQ), mask(rng, t.B, t.TV)
    allowed = reference.join_masks((t.B, t.TQ, t.TV), query_mask=valid, value_mask=present)
    expected = t.run(name, layer, query, memory, valid, allowed, present)
    found = layer(query, memory, query_mask=valid, value_mask=present, return_attention_scores=True)
    assert_close(found, expected, EXACT)


CELLS = {
    "GRU": keras.layers.GRUCell,
    "LSTM": keras.layers.LSTMCell,
}


@pytest.mark.parametrize(
    ("cell", "order", "feeding"), [("GRU", "bahdanau", False), ("LSTM", "luong", True)]
)
def test_recurrent_layers(rng, cell, order, feeding):
    layer = AttentionRNN(
        CELLS[cell](13),
        AdditiveAttention(17),
        order=order,
        input_feeding=feeding,
        units=19,
        return_state=True,
        return_attention_scores=True,
    )
    inputs, memory = normal(rng, 2, 5, 7), normal(rng, 2, 3, 11)
    layer.build(inputs.shape, memory.shape)
    randomize(layer, rng, 0.3)
    w, own = weights_of(layer.attention), weights_of(layer.cell)
    step = reference.CELLS[type(layer.cell).__name__]
    outputs, weights, states = reference.attention_rnn(
        [(step, own, len(keras.tree.flatten(layer.cell.state_size)), 13)],
        inputs,
        memory,
        lambda q, k: reference.additive(q, k, w["query_kernel"], w["key_kernel"], w["scale"]),
        order,
        array(layer.output_kernel.value),
        feeding,
    )
    result = keras.tree.flatten(layer(inputs, memory))
    states = [*states, outputs[:, -1]] if feeding else states
    assert_close(result, [outputs, *states, weights], EXACT)
    runner = HoistedRNN(CELLS[cell](13))
    runner.build(inputs.shape)
    randomize(runner, rng, 0.3)
    state = [np.zeros((2, 13))] * len(keras.tree.flatten(layer.cell.state_size))
    for t in range(5):
        output, state = step(inputs[:, t], state, weights_of(runner.cell))
    assert_close(runner(inputs), output, EXACT)


@pytest.mark.parametrize("name", mechanisms.BY_NAME)
def test_a_mechanism_made_by_name_has_its_type_all_through(rng, name):
    """Where the rest of a model is in another."""
    keras.config.set_dtype_policy("float32")
    layer = mechanisms.make(name, zoo.UNITS, dtype="float64")
    query, value = normal(rng, 2, 3, zoo.DV), normal(rng, 2, 5, zoo.DV)
    layer(query, value)
    assert {w.dtype for w in layer.weights} <= {"float64"}
    assert keras.backend.standardize_dtype(layer(query, value).dtype) == "float64"
