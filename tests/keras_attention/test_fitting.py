"""Options of `compile` and `fit`, and mixed precision, on models with attention.

With plain gradient descent, an update is linear in the gradients of the rows. So what each row does
alone gives what an option must do with all of them.
"""

import keras
import numpy as np
import pytest

from keras_attention import (
    AdditiveAttention,
    AttentionPooling,
    AttentionRNN,
    LocationSensitiveAttention,
    MonotonicAttention,
    MultiplicativeAttention,
)
from tests.keras_attention.helpers import array

BY_XLA = keras.backend.backend() == "jax"  # TensorFlow would compile for seconds
ROWS, LENGTH, WORDS, LABELS, UNITS = 4, 5, 11, 3, 6


def reader():
    """A small model with a loop and a pooling, from words to the logits of labels."""
    words = keras.Input((LENGTH,), dtype="int32")
    mask = words != 0
    embedded = keras.layers.Embedding(WORDS, UNITS)(words)
    decoder = AttentionRNN(keras.layers.GRUCell(UNITS), AdditiveAttention(UNITS))
    states = decoder(embedded, embedded, inputs_mask=mask, memory_mask=mask)
    return keras.Model(words, keras.layers.Dense(LABELS)(AttentionPooling(4)(states, mask=mask)))


@pytest.fixture
def fitted(rng):
    """A function that fits from the same weights, and returns by how much they change."""
    keras.utils.set_random_seed(3)
    model = reader()
    first = model.get_weights()
    words = rng.integers(1, WORDS, (ROWS, LENGTH)).astype("int32")
    words[1, 3:] = 0
    labels = np.array([0, 2, 1, 2])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def fit(rows, batch_size=ROWS, options=None, steps=1, **weights):
        model.set_weights(first)
        optimizer = keras.optimizers.SGD(0.5, **(options or {}))
        model.compile(optimizer, loss, steps_per_execution=steps, jit_compile=BY_XLA)
        data = words[rows], labels[rows]
        history = model.fit(*data, batch_size=batch_size, shuffle=False, verbose=0, **weights)
        changes = [a - b for a, b in zip(model.get_weights(), first, strict=True)]
        return history.history["loss"][0], np.concatenate([x.ravel() for x in changes])

    return fit


def test_weights_of_rows_and_classes_and_gradients_in_turns(fitted, untraced):
    alone = [fitted([row]) for row in range(ROWS)]
    losses, changes = (np.array(x) for x in zip(*alone, strict=True))
    assert (np.abs(changes).max(axis=1) > 1e-3).all()
    everything, shares = slice(None), np.array([0.0, 1.0, 0.25, 3.0])
    _, found = fitted(everything, sample_weight=shares)
    np.testing.assert_allclose(found, shares @ changes / ROWS, atol=1e-6)
    _, found = fitted(everything, class_weight={0: 2.0, 1: 0.0, 2: 0.5})
    np.testing.assert_allclose(found, [2.0, 0.5, 0.0, 0.5] @ changes / ROWS, atol=1e-6)
    loss, found = fitted(everything, 2, {"gradient_accumulation_steps": 2})
    np.testing.assert_allclose(found, changes.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(loss, losses.mean(), rtol=1e-5)


@pytest.mark.skipif(keras.backend.backend() == "torch", reason="Keras rejects it on PyTorch")
def test_several_steps_in_one_call(fitted):
    expected = fitted(slice(None), 1)
    found = fitted(slice(None), 1, steps=2)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-6)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)


def translator(attention, **options):
    """A model from words, and the words before, to logits of words."""
    source, shown = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    mask = source != 0
    encoder = keras.layers.Bidirectional(keras.layers.GRU(8, return_sequences=True))
    memory = encoder(keras.layers.Embedding(WORDS, 8)(source), mask=mask)
    decoder = AttentionRNN(keras.layers.LSTMCell(16), attention, **options)
    states = decoder(keras.layers.Embedding(WORDS, 8)(shown), memory, memory_mask=mask)
    return keras.Model([source, shown], keras.layers.Dense(WORDS, dtype="float32")(states))


MODELS = {
    "bahdanau": lambda: translator(AdditiveAttention(8), units=16, readout="maxout"),
    "general, input feeding": lambda: translator(
        MultiplicativeAttention("general"), units=16, order="luong", input_feeding=True
    ),
    "Tacotron 2": lambda: translator(
        LocationSensitiveAttention(8, cumulative=True), order="luong", input_feeding=True
    ),
    "monotonic": lambda: translator(MonotonicAttention(AdditiveAttention(8)), gate=True),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_whole_model_learns_in_mixed_bfloat16_as_in_float32(name, rng, set_policy):
    source = rng.integers(1, WORDS, (64, LENGTH)).astype("int32")
    source[::3, 3:] = 0
    data = [source, np.pad(source[:, :-1], [[0, 0], [1, 0]])], source
    losses = []
    for policy in ("float32", "mixed_bfloat16"):
        set_policy(policy)
        keras.utils.set_random_seed(5)
        model = MODELS[name]()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
        model.compile(keras.optimizers.Adam(0.02), loss, jit_compile=BY_XLA)
        fitted = model.fit(*data, batch_size=16, epochs=8, shuffle=False, verbose=0)
        losses.append(fitted.history["loss"])
    assert {array(weight.value).dtype.name for weight in model.trainable_weights} == {"float32"}
    first, last = np.array(losses)[:, [0, -1]].T
    assert (last < 0.7 * first).all()
    assert last[1] == pytest.approx(last[0], rel=0.1)
