"""Batches of no sentences give empty results; sequences of no positions are refused."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import AdditiveAttention, AttentionPooling, AttentionRNN, losses
from tests.keras_attention import zoo
from tests.keras_attention.helpers import array, assert_close, normal, weight_gradients

built = functools.cache(zoo.built)


def inputs_of(rng, name):
    """Inputs of no rows, and masks of them by the names that the layer has for them."""
    inputs = [normal(rng, 0, *shape) for shape in zoo.shapes(name)]
    named = zip(zoo.masks(name), inputs, strict=True)
    return inputs, {key: np.ones(x.shape[:2], bool) for key, x in named if key}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", zoo.thinned(zoo.LAYERS))
def test_no_sentences_give_no_results(rng, name, masked):
    """Eagerly, and on TensorFlow in a graph that knows no sizes."""
    layer, (inputs, masks) = built(name), inputs_of(rng, name)
    masks = masks if masked else {}

    def call(*arrays):
        named = dict(zip(masks, arrays[len(inputs) :], strict=True))
        return zoo.call(name, layer, arrays[: len(inputs)], **named)

    if masked and keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        arrays = [*inputs, *masks.values()]
        free = [x.ndim - (x.dtype != bool) for x in arrays]
        specs = [
            tf.TensorSpec((None,) * n + x.shape[n:], x.dtype.name)
            for x, n in zip(arrays, free, strict=True)
        ]
        call = tf.function(call, input_signature=specs, autograph=False)
    result = call(*inputs, *masks.values())
    full = zoo.call(name, layer, zoo.arrays(name, rng))
    assert len(result) == len(full)
    for x, like in zip(result, full, strict=True):
        assert x.shape[0] == 0
        assert len(x.shape) == len(like.shape)


@pytest.mark.parametrize("name", zoo.thinned(n for n in zoo.LAYERS if n != "hoisted"))
def test_gradients_of_no_sentences_are_zeros(rng, name):
    layer, (inputs, masks) = built(name), inputs_of(rng, name)
    slopes = weight_gradients(layer, lambda: ops.sum(zoo.call(name, layer, inputs, **masks)[0]))
    for weight in layer.trainable_weights:
        assert slopes[weight.path].shape == tuple(weight.shape)
        assert not slopes[weight.path].any()


@pytest.mark.parametrize("shapes", [[(2, 0, 5), (2, 3, 5)], [(2, 3, 5), (2, 0, 5)]])
@pytest.mark.parametrize(
    "make",
    [
        lambda: AdditiveAttention(3),
        lambda: AttentionRNN(keras.layers.GRUCell(5), AdditiveAttention(3)),
    ],
)
def test_sequences_of_no_positions_are_refused(make, shapes):
    with pytest.raises(ValueError, match=r" expected a .*position at least. Received: "):
        make()(*(np.zeros(shape, "float32") for shape in shapes))
    with pytest.raises(ValueError, match=r" expected a .*position at least. Received: "):
        AttentionPooling(3)(np.zeros((2, 0, 5), "float32"))


@pytest.mark.parametrize("loss", losses.BY_NAME)
def test_losses_of_no_sentences_are_nothing(loss):
    assert losses.BY_NAME[loss](np.zeros((0, 3, 5), "float32")).shape == (0,)
    layer = losses.AttentionLoss(loss)
    outputs = np.zeros((0, 3, 7), "float32")
    assert layer(outputs, np.zeros((0, 3, 5), "float32")).shape == outputs.shape
    assert_close(array(layer.losses[0]), 0.0)
