"""A call changes nothing of a layer that another thread may be calling."""

import threading

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import AdditiveAttention, AttentionRNN, HoistedRNN
from tests.keras_attention.helpers import array, normal

B, T, S, DIM, UNITS = 2, 5, 3, 7, 29


class Interrupted:
    """An activation during which, once, another thread does something."""

    def __init__(self):
        self.todo, self.result = None, None

    def __call__(self, x):
        todo, self.todo = self.todo, None
        if todo is not None:
            thread = threading.Thread(target=lambda: setattr(self, "result", array(todo())))
            thread.start()
            thread.join(60)
        return ops.tanh(x)


def gru(activation):
    return keras.layers.GRUCell(UNITS, activation, dropout=0.5, recurrent_dropout=0.5, seed=3)


def stack(activation):
    return keras.layers.StackedRNNCells([gru("tanh"), gru(activation)])


LAYERS = {
    "bahdanau": lambda activation: AttentionRNN(gru(activation), AdditiveAttention(5)),
    "luong": lambda activation: AttentionRNN(stack(activation), AdditiveAttention(5), "luong"),
    "hoisted": lambda activation: HoistedRNN(gru(activation), return_sequences=True),
}


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="it traces while no other thread can")
@pytest.mark.parametrize("name", LAYERS)
def test_training_and_inference_beside_one_another_have_their_own_dropout(rng, name):
    activation = Interrupted()
    layer, sequence = LAYERS[name](activation), normal(rng, B, T, DIM)
    inputs = (sequence,) if name == "hoisted" else (sequence, normal(rng, B, S, DIM))
    plain = array(layer(*inputs))
    for training in (False, True):
        activation.todo = lambda other=not training: layer(*inputs, training=other)
        results = array(layer(*inputs, training=training)), activation.result
        trained, inferred = results if training else results[::-1]
        np.testing.assert_allclose(inferred, plain, atol=1e-6)
        assert np.abs(trained - plain).max() > 1e-2
