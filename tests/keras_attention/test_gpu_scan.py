"""The loop that XLA compiles for a GPU, compiled for a CPU here, beside TensorFlow's own loop."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_attention import backend, distributions
from keras_attention.recurrent.hoisted_rnn import HoistedBidirectional, HoistedRNN
from tests.keras_attention.helpers import assert_close

BATCH, DIM, UNITS = 3, 5, 7


@pytest.fixture(autouse=True)
def _for_gpu(monkeypatch):
    monkeypatch.setenv("KERAS_ATTENTION_DEVICE", "gpu")


def draw(rng, *shape, dtype="float64"):
    return tf.constant(rng.normal(size=shape), dtype)


def with_slope(function, x, jit_compile=True):
    """The outputs of a function of `x`, and the gradient of their sum."""

    @tf.function(jit_compile=jit_compile, autograph=False)
    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = function(x)
            total = tf.reduce_sum(tf.cast(outputs, "float32"))
        return outputs, tape.gradient(total, x)

    return run(x)


def test_outputs_states_and_gradients_are_those_of_the_plain_loop(rng, monkeypatch):
    """A step with everything: states of which one is an output, integers, masks and `saved`."""
    memory, kernel = draw(rng, BATCH, UNITS), tf.Variable(draw(rng, UNITS, UNITS) / 3)
    start = draw(rng, BATCH, UNITS), tf.zeros((BATCH, UNITS), "float64")

    def compute(inputs, mask):
        with tf.GradientTape() as tape:
            watched = [inputs, memory, *start, kernel]
            tape.watch(watched)
            values = memory * 1.0

            def step(now, state):
                (x, mask), (h, total, count) = now, state
                product = backend.checkpointed(
                    lambda: tf.stop_gradient(h) @ tf.stop_gradient(kernel)
                )
                new = tf.tanh(x @ kernel[:DIM] * 1.3 + h * values + product)
                h = tf.where(mask[:, None], new, h)
                output = tf.sin(h) * values
                return (h, output, output + 1.0), (h, total + output, count + 1)

            outputs, last = backend.scan(
                step, (*start, tf.constant(0)), (inputs, mask), ("float64",) * 3
            )
            loss = sum(tf.reduce_sum(tf.sin(x * n)) for n, x in enumerate((*outputs, *last[:2]), 1))
        return outputs, last, tape.gradient(loss, watched)

    specs = [tf.TensorSpec((None, BATCH, DIM), "float64"), tf.TensorSpec((None, BATCH), "bool")]
    options = {"autograph": False, "input_signature": specs}
    on_gpu, plain = (
        tf.function(compute, jit_compile=True, **options),
        tf.function(compute, **options),
    )
    for length in (1, 4):
        given = draw(rng, length, BATCH, DIM), tf.constant(rng.random((length, BATCH)) < 0.8)
        monkeypatch.setenv("KERAS_ATTENTION_DEVICE", "gpu")
        found = on_gpu(*given)
        monkeypatch.setenv("KERAS_ATTENTION_DEVICE", "cpu")
        expected = plain(*given)
        for ours, wanted in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
            np.testing.assert_allclose(ours, wanted, rtol=1e-9, atol=1e-10)
        outputs, last, _ = expected
        assert last[2] == length  # it counts the steps
        np.testing.assert_array_equal(outputs[0][-1], last[0])  # the state after each


def test_a_step_is_traced_once_and_once_for_its_gradient():
    calls, kernel = [], tf.ones((UNITS, UNITS))

    def outputs(inputs):
        def step(x, h):
            calls.append(x)
            h = tf.tanh(x + h @ kernel)
            return h, h

        return backend.scan(step, inputs[0] * 0, inputs, "float32")[0]

    with_slope(outputs, tf.ones((5, BATCH, UNITS)))
    assert len(calls) == 2


def test_a_second_derivative_is_refused(rng):
    kernel = draw(rng, UNITS, UNITS)

    def slope(inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            _, last = backend.scan(
                lambda x, h: (h, tf.tanh(x + h @ kernel)), inputs[0] * 0, inputs, "float64"
            )
            loss = tf.reduce_sum(last**2)
        return tape.gradient(loss, inputs) ** 2

    with pytest.raises(NotImplementedError, match="second derivative"):
        with_slope(slope, draw(rng, 5, BATCH, UNITS))


def test_the_device_can_be_said(monkeypatch):
    for value, answer in (("gpu", True), ("cpu", False)):
        monkeypatch.setenv("KERAS_ATTENTION_DEVICE", value)
        assert backend.on_gpu() is answer
    monkeypatch.setenv("KERAS_ATTENTION_DEVICE", "tpu")
    with pytest.raises(ValueError, match=r"expected cpu or gpu\. Received: tpu"):
        backend.on_gpu()


def mapped(function, inputs):
    """The function of each step's input, by the loop."""
    steps = backend.scan(
        lambda now, state: (function(now), state), inputs[0], inputs, inputs.dtype.name
    )
    return steps[0]


def test_a_step_that_draws_its_own_numbers_has_the_gradient_of_these():
    drop = keras.layers.Dropout(0.5, seed=1)
    dropped = lambda x: mapped(lambda now: drop(now, training=True), x)  # noqa: E731
    outputs, slope = with_slope(dropped, tf.ones((8, 2, 6)))  # at 1 the factors are the outputs
    assert set(np.unique(outputs)) == {0.0, 2.0}
    np.testing.assert_array_equal(slope, outputs)


def test_sums_over_steps_are_kept_in_float32(rng):
    factors = tf.constant(rng.random((300, BATCH, UNITS)), "bfloat16")
    value = draw(rng, BATCH, UNITS, dtype="bfloat16")
    _, slope = with_slope(lambda value: mapped(lambda now: now * value, factors), value)
    expected = np.sum(factors.numpy().astype("float64"), 0)
    np.testing.assert_allclose(slope.numpy().astype("float64"), expected, rtol=4e-3)


def test_a_score_of_minus_infinity_has_no_weight(rng):
    scores = rng.normal(size=(2, BATCH, UNITS)).astype("float32")
    scores[:, :, 2] = -np.inf
    allowed = np.ones((BATCH, UNITS), "bool")
    allowed[0, 4:] = False

    def weigh(scores):
        return mapped(lambda now: distributions.softmax(now, allowed), scores)[..., 0]

    ours, plain = (with_slope(weigh, tf.constant(scores), compiled) for compiled in (True, False))
    assert np.isfinite(plain[1]).all()
    assert_close(ours, plain, 1e-6)


@pytest.mark.parametrize(
    "other", [{}, pytest.param({"recurrent_activation": "relu"}, marks=pytest.mark.slow)]
)
def test_directions_of_other_activations_have_loops_of_their_own(rng, other):
    cells = keras.layers.LSTMCell(UNITS), keras.layers.LSTMCell(UNITS, **other)
    options = {"return_sequences": True}, {"return_sequences": True, "go_backwards": True}
    one, two = (HoistedRNN(cell, **each) for cell, each in zip(cells, options, strict=True))
    layer = HoistedBidirectional(one, backward_layer=two)
    inputs = draw(rng, BATCH, 4, DIM, dtype="float32")
    expected = layer(inputs)  # eagerly: two layers of Keras
    found = tf.function(layer, jit_compile=True, autograph=False)(inputs)
    assert_close(found, expected, 1e-6)
