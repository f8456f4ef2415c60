"""The fast loop and the plain one: the same outputs, the same gradients."""

import keras
import numpy as np
import pytest

from keras_attention import AdditiveAttention, AttentionRNN, MultiplicativeAttention
from tests.keras_attention.helpers import array, normal

pytestmark = pytest.mark.tensorflow  # the fast loop is there alone

CELLS = [keras.layers.SimpleRNNCell, keras.layers.GRUCell, keras.layers.LSTMCell]
MECHANISMS = {
    "additive": lambda: AdditiveAttention(5),
    "normalised": lambda: AdditiveAttention(5, normalize=True),
    "general": lambda: MultiplicativeAttention("general"),
}


@pytest.mark.parametrize("order", ["bahdanau", "luong"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("cell", CELLS)
def test_gradients_are_those_of_the_step_by_step_loop(rng, cell, mechanism, order, monkeypatch):
    import tensorflow as tf

    inputs, memory = tf.constant(normal(rng, 3, 5, 11)), tf.constant(normal(rng, 3, 4, 2))
    memory_mask = np.array([[1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 0, 0]], bool)
    layer = AttentionRNN(
        cell(7, bias_initializer="random_normal"),
        MECHANISMS[mechanism](),
        order=order,
        units=13,
        return_state=True,
        return_attention_scores=True,
    )
    layer.build(inputs.shape, memory.shape)
    looked_at = tf.constant(normal(rng, 3, 5, 13))

    def gradients():
        with tf.GradientTape() as tape:
            tape.watch([inputs, memory])
            outputs, *states, weights = layer(inputs, memory, memory_mask=memory_mask)
            loss = tf.reduce_sum(outputs * looked_at) + tf.reduce_sum(weights**3)
            loss += sum(tf.reduce_sum(state**2) for state in states)
        watched = [*(weight.value for weight in layer.trainable_weights), inputs, memory]
        return array([loss, *tape.gradient(loss, watched)])

    fast = gradients()
    monkeypatch.setattr(AttentionRNN, "_can_hoist", lambda self: False)
    monkeypatch.setattr(AttentionRNN, "_cell_can_hoist", lambda self: False)
    for a, b in zip(fast, gradients(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
