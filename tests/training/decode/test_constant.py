"""Products and steps with constant kernels against NumPy and the layers."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import (
    AdditiveAttention,
    AttentionRNN,
    LocalAttention,
    MultiplicativeAttention,
    State,
)
from tests.keras_attention.helpers import array, assert_close, normal
from training.decode.constant.step import fixes_step

pytestmark = pytest.mark.tensorflow

B, S, DIM, INPUTS, UNITS, WIDTH, TOKENS = 3, 5, 11, 7, 13, 2, 23
EPSILON = 2.0**-8  # of bfloat16, whose rounding is at most half of it


def rounded(x):
    """To bfloat16, by NumPy: half up, which differs from half to even on exact halves alone."""
    bits = np.ascontiguousarray(x, "float32").view("uint32")
    return ((bits + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).view("float32")


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
def test_a_product_in_float32_is_exact(rng, with_bias, single):
    from training.decode.constant.products import product

    x, kernel, bias = normal(rng, B, INPUTS), normal(rng, INPUTS, UNITS), normal(rng, UNITS)
    found = array(product(kernel, bias if with_bias else None, "float32", single)(x))
    assert_close(found, x.astype("float64") @ kernel + with_bias * bias)


@pytest.mark.parametrize("with_bias", [False, True])
def test_a_product_is_that_of_rounded_factors(rng, with_bias):
    from training.decode.constant.products import product

    x, kernel, bias = normal(rng, B, INPUTS), normal(rng, INPUTS, UNITS), normal(rng, UNITS)
    exact = rounded(x).astype("float64") @ rounded(kernel) + with_bias * rounded(bias)
    found = array(product(kernel, bias if with_bias else None)(x))
    assert found.dtype == "float32"
    size = np.abs(rounded(x)) @ np.abs(rounded(kernel)) + 1
    assert (np.abs(found - exact) < EPSILON * size).all()
    assert np.abs(found - exact).max() > 0


@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize("scale", [1.0, 30.0])  # flat, and with all the mass on one token
def test_a_shortlist_has_the_best_logits_in_float32(rng, scale, softmax):
    from training.decode.constant.products import shortlist

    size, k = 2503, 6
    x, kernel, bias = normal(rng, B, UNITS), scale * normal(rng, UNITS, size), normal(rng, size)
    logits = x.astype("float64") @ rounded(kernel) + bias
    log_probs, ids = array(shortlist(kernel, bias, k, softmax)(x))
    assert ids.dtype == "int32"
    assert [len(set(row)) for row in ids] == [k] * B
    best = np.argsort(-logits, axis=-1)
    for b in range(B):
        assert set(best[b, : k // 2]) <= set(ids[b])
    listed = np.take_along_axis(logits, ids, -1)
    # Differences of log-probabilities are those of logits, in float32.
    np.testing.assert_allclose(
        log_probs - log_probs[:, :1], listed - listed[:, :1], rtol=1e-5, atol=1e-4 * scale
    )
    greatest = logits.max(-1, keepdims=True)
    normaliser = greatest + np.log(np.exp(logits - greatest).sum(-1, keepdims=True))
    # Rounding moves the normaliser little: by that of the unlisted alone.
    np.testing.assert_allclose(log_probs, listed - normaliser, atol=0.02)


def lstm():
    return keras.layers.LSTMCell(UNITS)


def general():
    return MultiplicativeAttention("general")


LAYERS = {
    "lstm": lambda: (lstm(), AdditiveAttention(17), {"units": 19}),
    "gru": lambda: (keras.layers.GRUCell(UNITS), AdditiveAttention(17, use_bias=True), {}),
    "simple": lambda: (
        keras.layers.SimpleRNNCell(UNITS),
        LocalAttention(MultiplicativeAttention("general")),
        {},
    ),
    "stack, luong, feeding": lambda: (
        keras.layers.StackedRNNCells([keras.layers.GRUCell(UNITS + 4), lstm()]),
        general(),
        {"units": 19, "order": "luong", "input_feeding": True},
    ),
    "stack, feeding": lambda: (
        keras.layers.StackedRNNCells([lstm(), lstm()]),
        AdditiveAttention(17, normalize=True),
        {"units": 19, "input_feeding": True},
    ),
}


@pytest.mark.parametrize(("dtype", "kept"), [("float32", False), ("bfloat16", True)])
@pytest.mark.parametrize("name", LAYERS)
def test_steps_are_those_of_the_layer_but_for_rounding(rng, monkeypatch, name, dtype, kept):
    from training.decode.constant import products as constant
    from training.decode.constant.step import ConstantStep

    if not kept:  # the products of all embeddings take too much room
        monkeypatch.setattr(constant, "TABLE", 0)
    cell, attention, options = LAYERS[name]()
    layer = AttentionRNN(cell, attention, **options)
    memory = normal(rng, B, S, DIM)
    layer(normal(rng, B, 1, INPUTS), memory)
    for weight in layer.weights:
        weight.assign(normal(rng, *weight.shape) * 0.5)
    assert fixes_step(layer)
    mask = np.arange(S) < np.array([[S], [2], [3]])
    prepared = layer.prepare(ops.convert_to_tensor(memory), mask=mask)
    embeddings = keras.Variable(normal(rng, TOKENS, INPUTS))
    step = ConstantStep(layer, embeddings, WIDTH, dtype, dtype)
    made = step.prepare(memory, mask)
    tolerance = 1e-5 if dtype == "float32" else 0.1
    assert {id(w) for w in step.taken} <= {id(w) for w in [*layer.weights, embeddings]}
    assert (id(embeddings) in {id(w) for w in step.taken}) == kept
    state = layer.initial_state(prepared)
    # The beams of a sentence share its row of the memory.
    state = State(*keras.tree.map_structure(lambda x: ops.repeat(x, WIDTH, 0), tuple(state)))
    for _ in range(3):
        tokens = rng.integers(0, TOKENS, B * WIDTH).astype("int32")
        expected = layer.step(array(embeddings)[tokens], prepared, state)
        found = step(tokens, made, state)
        keras.tree.assert_same_structure(found, expected)
        largest = 0.0
        for x, y in zip(*map(keras.tree.flatten, (array(found), array(expected))), strict=True):
            assert x.dtype == y.dtype
            assert x.shape == y.shape
            np.testing.assert_allclose(x, y, atol=tolerance)
            largest = max(largest, np.abs(x - y).max())
        assert largest > 0  # it is another computation
        state = expected[2]
    assert_reads_no_more_than_it_has_left(step, tokens, memory, mask, state, layer, embeddings)
    before = array(step(tokens, made, state))
    for weight in step.taken:
        weight.assign(weight * 2)
    after = array(step(tokens, made, state))
    for x, y in zip(*map(keras.tree.flatten, (before, after)), strict=True):
        np.testing.assert_array_equal(x, y)


def assert_reads_no_more_than_it_has_left(step, tokens, memory, mask, state, layer, embeddings):
    """A graph's variables are saved with it: one that is a constant, too, is there twice."""
    import tensorflow as tf

    def whole():
        return step(tokens, step.prepare(memory, mask), state)[:2]

    graph = tf.function(whole, autograph=False).get_concrete_function().graph
    read = {id(outside) for outside, _ in graph.captures}
    taken = {id(weight) for weight in step.taken}
    for weight in [*layer.weights, embeddings]:
        assert (id(weight.value.handle) in read) == (id(weight) not in taken), weight.path


def test_cells_that_are_not_known_are_not_supported():
    assert not fixes_step(AttentionRNN(keras.layers.GRUCell(UNITS, reset_after=False), general()))
    assert not fixes_step(AttentionRNN(lstm(), general(), gate=True))
    assert not fixes_step(AttentionRNN(lstm(), AdditiveAttention(4, num_heads=2)))
