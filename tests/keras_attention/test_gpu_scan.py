"""The loop that XLA compiles for a GPU, compiled for a CPU here, beside TensorFlow's own loop."""

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="a loop of TensorFlow"
)

BATCH, DIM, UNITS = 3, 5, 7


@pytest.fixture
def for_gpu(monkeypatch):
    monkeypatch.setenv("KERAS_ATTENTION_DEVICE", "gpu")


def draw(rng, *shape):
    return rng.normal(size=shape).astype("float64")


def run(kernel, memory, scale, inputs, mask, state):
    """A step with everything: states of which one is an output, integers, masks and `saved`."""
    import tensorflow as tf

    from keras_attention import backend

    def step(now, state):
        h, total, count = state
        x, mask = now
        product = backend.saved(lambda: tf.stop_gradient(h) @ tf.stop_gradient(kernel))
        new = tf.tanh(x @ kernel[:DIM] * scale + h * memory + product)
        h = tf.where(mask[:, None], new, h)
        output = tf.sin(h) * memory
        return (h, output, output + 1.0), (h, total + output, count + 1)

    dtypes = ("float64", "float64", "float64")
    return backend.scan(step, state, (inputs, mask), dtypes)


@pytest.fixture
def arguments(rng):
    import tensorflow as tf

    def draw_all(length):
        mask = rng.random((length, BATCH)) < 0.8
        inputs = tf.constant(draw(rng, length, BATCH, DIM))
        state = (
            tf.constant(draw(rng, BATCH, UNITS)),
            tf.zeros((BATCH, UNITS), "float64"),
            tf.constant(0),
        )
        return inputs, tf.constant(mask), state

    return draw_all


def gradients_of(scan_arguments, constants, kernel, jit_compile):
    """The outputs, the last states, and the gradients of all that a loss depends on."""
    import tensorflow as tf

    memory, scale = constants
    inputs, mask, state = scan_arguments
    specs = [tf.TensorSpec((None, BATCH, DIM), "float64"), tf.TensorSpec((None, BATCH), "bool")]

    @tf.function(jit_compile=jit_compile, autograph=False, input_signature=specs)
    def compute(inputs, mask):
        with tf.GradientTape() as tape:
            watched = [inputs, memory, *state[:2]]
            tape.watch(watched)
            tape.watch(kernel)
            outputs, last = run(kernel, memory * 1.0, scale, inputs, mask, state)
            loss = sum(
                tf.reduce_sum(tf.sin(x * (i + 1.0))) for i, x in enumerate((*outputs, *last[:2]))
            )
        return outputs, last, tape.gradient(loss, [*watched, kernel])

    return tf.nest.map_structure(np.asarray, compute(inputs, mask))


@pytest.mark.parametrize("length", [1, 4, 7])
def test_outputs_states_and_gradients_are_those_of_the_plain_loop(
    rng, arguments, monkeypatch, length
):
    import tensorflow as tf

    constants = tf.constant(draw(rng, BATCH, UNITS)), 1.3
    kernel = tf.Variable(draw(rng, UNITS, UNITS) / 3)
    given = arguments(length)
    monkeypatch.setenv("KERAS_ATTENTION_DEVICE", "cpu")
    plain = gradients_of(given, constants, kernel, False)
    monkeypatch.setenv("KERAS_ATTENTION_DEVICE", "gpu")
    for ours, wanted in zip(
        tf.nest.flatten(gradients_of(given, constants, kernel, True)),
        tf.nest.flatten(plain),
        strict=True,
    ):
        np.testing.assert_allclose(ours, wanted, rtol=1e-9, atol=1e-10)
    # The last state counts the steps; the first output is the state after each.
    assert plain[1][2] == length
    np.testing.assert_array_equal(plain[0][0][-1], plain[1][0])


def test_a_second_derivative_is_refused(rng, for_gpu):
    import tensorflow as tf

    from keras_attention import backend

    inputs, kernel = tf.constant(draw(rng, 5, BATCH, UNITS)), tf.constant(draw(rng, UNITS, UNITS))

    @tf.function(jit_compile=True, autograph=False)
    def twice(inputs):
        with tf.GradientTape() as outer:
            outer.watch(inputs)
            with tf.GradientTape() as inner:
                inner.watch(inputs)
                _, last = backend.scan(
                    lambda x, h: (h, tf.tanh(x + h @ kernel)), inputs[0] * 0, inputs, "float64"
                )
                loss = tf.reduce_sum(last**2)
            slope = tf.reduce_sum(inner.gradient(loss, inputs) ** 2)
        return outer.gradient(slope, inputs)

    with pytest.raises(NotImplementedError, match="second derivative"):
        twice(inputs)


def test_the_device_can_be_said(monkeypatch):
    from keras_attention.backend import on_gpu

    for value, answer in (("gpu", True), ("cpu", False)):
        monkeypatch.setenv("KERAS_ATTENTION_DEVICE", value)
        assert on_gpu() is answer
    monkeypatch.setenv("KERAS_ATTENTION_DEVICE", "tpu")
    with pytest.raises(ValueError, match=r"expected cpu or gpu\. Received: tpu"):
        on_gpu()
