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


# JAX calls an activation while it traces, when no other thread can.
beside = pytest.mark.skipif(keras.backend.backend() == "jax", reason="tracing holds a lock")


@beside
@pytest.mark.parametrize("name", LAYERS)
def test_training_beside_inference_has_its_dropout(rng, name):
    activation = Interrupted()
    layer, sequence = LAYERS[name](activation), normal(rng, B, T, DIM)
    inputs = (sequence,) if name == "hoisted" else (sequence, normal(rng, B, S, DIM))
    plain = array(layer(*inputs))
    activation.todo = lambda: layer(*inputs, training=True)
    np.testing.assert_allclose(array(layer(*inputs)), plain, atol=1e-6)
    assert np.abs(activation.result - plain).max() > 1e-2


@beside
@pytest.mark.parametrize("name", LAYERS)
def test_inference_beside_training_has_none(rng, name):
    activation = Interrupted()
    layer, sequence = LAYERS[name](activation), normal(rng, B, T, DIM)
    inputs = (sequence,) if name == "hoisted" else (sequence, normal(rng, B, S, DIM))
    plain = array(layer(*inputs))
    activation.todo = lambda: layer(*inputs)
    trained = array(layer(*inputs, training=True))
    assert np.abs(trained - plain).max() > 1e-2
    np.testing.assert_allclose(activation.result, plain, atol=1e-6)
