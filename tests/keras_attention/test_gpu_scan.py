"""The loop that XLA compiles for a GPU, compiled for a CPU here, beside TensorFlow's own loop."""

import keras
import numpy as np
import pytest

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
        product = backend.checkpointed(lambda: tf.stop_gradient(h) @ tf.stop_gradient(kernel))
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


def test_a_step_is_traced_once_and_once_for_its_gradient(for_gpu):
    import tensorflow as tf

    from keras_attention import backend

    calls = []
    kernel = tf.Variable(tf.ones((UNITS, UNITS)))

    def step(x, h):
        calls.append(x)
        h = tf.tanh(x + h @ kernel)
        return h, h

    @tf.function(
        jit_compile=True, autograph=False, input_signature=[tf.TensorSpec((None, BATCH, UNITS))]
    )
    def compute(inputs):
        with tf.GradientTape() as tape:
            outputs, _ = backend.scan(step, tf.zeros((BATCH, UNITS)), inputs, "float32")
            loss = tf.reduce_sum(outputs)
        return tape.gradient(loss, kernel)

    compute.get_concrete_function()
    assert len(calls) == 2


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


def test_a_step_that_draws_its_own_numbers_has_the_gradient_of_these(for_gpu):
    import tensorflow as tf

    from keras_attention import backend

    drop = keras.layers.Dropout(0.5, seed=1)

    @tf.function(jit_compile=True, autograph=False)
    def differentiate(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs, _ = backend.scan(
                lambda now, state: (drop(now, training=True), state), x[0] * 0, x, "float32"
            )
            loss = tf.reduce_sum(outputs)
        return outputs, tape.gradient(loss, x)

    outputs, slope = differentiate(tf.ones((8, 2, 6)))  # at 1 the factors are the outputs
    assert set(np.unique(outputs)) == {0.0, 2.0}
    np.testing.assert_array_equal(slope, outputs)


def test_sums_over_steps_are_kept_in_float32(for_gpu, rng):
    import tensorflow as tf

    from keras_attention import backend

    value = tf.constant(draw(rng, BATCH, UNITS), "bfloat16")
    factors = tf.constant(rng.random((300, BATCH, UNITS)), "bfloat16")

    @tf.function(jit_compile=True, autograph=False)
    def differentiate(value):
        with tf.GradientTape() as tape:
            tape.watch(value)
            outputs, _ = backend.scan(
                lambda now, state: (now * value, state), factors[0], factors, "bfloat16"
            )
            loss = tf.reduce_sum(tf.cast(outputs, "float32"))
        return tape.gradient(loss, value)

    expected = np.sum(factors.numpy().astype("float64"), 0)
    np.testing.assert_allclose(differentiate(value).numpy().astype("float64"), expected, rtol=4e-3)


def test_a_score_of_minus_infinity_has_no_weight(for_gpu, rng):
    import tensorflow as tf

    from keras_attention import backend, distributions

    scores = draw(rng, 2, BATCH, UNITS).astype("float32")
    scores[:, :, 2] = -np.inf
    allowed = np.ones((BATCH, UNITS), "bool")
    allowed[0, 4:] = False

    def weigh(scores):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            outputs, _ = backend.scan(
                lambda now, state: (distributions.softmax(now, allowed), state),
                scores[0],
                scores,
                "float32",
            )
            loss = tf.reduce_sum(outputs[..., 0])
        return outputs, tape.gradient(loss, scores)

    ours = tf.function(weigh, jit_compile=True, autograph=False)(tf.constant(scores))
    for found, wanted in zip(ours, weigh(tf.constant(scores)), strict=True):
        assert np.isfinite(wanted).all()
        np.testing.assert_allclose(found, wanted, atol=1e-6)


@pytest.mark.parametrize("other", [{}, {"activation": "sigmoid"}, {"recurrent_activation": "relu"}])
def test_directions_of_other_activations_have_loops_of_their_own(for_gpu, rng, other):
    import tensorflow as tf

    from keras_attention.recurrent.hoisted_rnn import HoistedBidirectional, HoistedRNN

    cells = keras.layers.LSTMCell(UNITS), keras.layers.LSTMCell(UNITS, **other)
    options = {"return_sequences": True}, {"return_sequences": True, "go_backwards": True}
    one, two = (HoistedRNN(cell, **each) for cell, each in zip(cells, options, strict=True))
    layer = HoistedBidirectional(one, backward_layer=two)
    inputs = draw(rng, BATCH, 4, DIM).astype("float32")
    expected = layer(inputs)  # eagerly: two layers of Keras
    found = tf.function(layer, jit_compile=True, autograph=False)(tf.constant(inputs))
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("beam_width", [1, 3])
def test_a_search_takes_no_more_tokens_than_max_steps(for_gpu, rng, beam_width):
    import tensorflow as tf

    from keras_attention import beam_search

    table = tf.nn.log_softmax(tf.constant(draw(rng, 7, 7), "float32"))

    def search(lengths, steps):
        return beam_search(
            lambda tokens, state: (tf.gather(table, tokens), None, state),
            (),
            batch_size=2,
            start_id=1,
            end_id=2,
            max_length=lengths,
            max_steps=steps,
            beam_width=beam_width,
            num_results=beam_width,
            return_attention_weights=False,
        )

    expected = search([3, 2], 3)
    for compiled in (True, False):
        run = tf.function(lambda: search([9, 2], 3), jit_compile=compiled, autograph=False)
        found = run()
        assert np.max(found.lengths) == 3
        np.testing.assert_array_equal(found.lengths, expected.lengths)
        np.testing.assert_array_equal(found.ids, expected.ids[..., : found.ids.shape[-1]])
        np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)
