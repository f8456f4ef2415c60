"""Padding changes nothing, on whichever side it stands and however the mask is written."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import AdditiveAttention, AttentionRNN, HoistedRNN
from tests.keras_attention import zoo
from tests.keras_attention.helpers import (
    array,
    assert_close,
    gradients,
    mask,
    normal,
    weight_gradients,
    weighted_sum,
)

B, TQ, TV, DIM = 2, 3, 5, 6
SOURCE = np.array([[3, 1, 4, 0, 0], [1, 5, 2, 6, 3]])


def test_masks_may_be_lists_and_attention_masks_may_have_axes_of_1(rng):
    layer = AdditiveAttention(7)
    query, value = normal(rng, B, TQ, DIM), normal(rng, B, TV, DIM)
    rows, columns, pairs = mask(rng, B, TQ), mask(rng, B, TV), mask(rng, B, TQ, TV)

    def call(**kwargs):
        return array(layer(query, value, return_attention_scores=True, **kwargs))

    assert_close(
        call(query_mask=rows.tolist(), value_mask=columns.tolist(), attention_mask=pairs.tolist()),
        call(query_mask=rows, value_mask=columns, attention_mask=pairs),
    )
    for narrow in (columns[:, None], columns[:1, None], pairs[:1], pairs[0], columns[:1]):
        whole = np.broadcast_to(narrow, (B, TQ, TV))
        assert_close(call(attention_mask=narrow), call(attention_mask=whole))
    one = layer(query[:, 0], value, attention_mask=columns)
    assert_close(one, call(attention_mask=columns[:, None])[0][:, 0])
    one = layer(query[:, 0], value, query_mask=rows[:, 0])
    assert_close(one, call(query_mask=rows)[0][:, 0])
    rnn = AttentionRNN(keras.layers.GRUCell(7), AdditiveAttention(7))
    expected = array(rnn(query, value, inputs_mask=rows, memory_mask=columns))
    assert_close(
        rnn(query, value, inputs_mask=rows.tolist(), memory_mask=columns.tolist()), expected
    )
    prepared = layer.prepare(ops.convert_to_tensor(value), mask=columns.tolist())
    assert_close(prepared.mask, columns)


def test_masks_may_stand_in_their_places_in_a_model(rng):
    query, value = normal(rng, B, TQ, DIM), normal(rng, B, TV, DIM)
    masks = np.arange(TQ) < np.array([[2], [3]]), np.arange(TV) < np.array([[5], [4]])
    symbols = [keras.Input(x.shape[1:], dtype=x.dtype.name) for x in (query, value, *masks)]
    layer = AttentionRNN(keras.layers.GRUCell(7), AdditiveAttention(7))
    found = keras.Model(symbols, layer(*symbols))([query, value, *masks])
    expected = layer(query, value, inputs_mask=masks[0], memory_mask=masks[1])
    assert_close(found, array(expected))


def test_a_prepared_memory_has_the_mask_that_a_tensor_carries(rng):
    memory = keras.layers.Embedding(7, DIM, mask_zero=True)(SOURCE)
    decoder = AttentionRNN(keras.layers.GRUCell(7), AdditiveAttention(5))
    decoder(normal(rng, B, TQ, DIM), memory)
    assert_close(decoder.prepare(memory).mask, SOURCE != 0)
    everything = np.ones(SOURCE.shape, bool)
    assert_close(decoder.prepare(memory, mask=everything).mask, everything)


def test_a_hoisted_rnn_hands_the_mask_on_and_keeps_the_cells_regularizer():
    embedded = keras.layers.Embedding(7, DIM, mask_zero=True)(SOURCE)
    cell = keras.layers.GRUCell(7, activity_regularizer="l2")
    ours, theirs = (make(cell, return_sequences=True) for make in (HoistedRNN, keras.layers.RNN))
    assert_close(ours(embedded)._keras_mask, SOURCE != 0)
    if keras.backend.backend() == "tensorflow":  # elsewhere the loss does not leave Keras's loop
        losses_of = [
            [float(x) for x in (layer(embedded), layer.losses)[1]] for layer in (ours, theirs)
        ]
        assert losses_of[0]
        np.testing.assert_allclose(*losses_of, rtol=1e-5)


# Layers that take masks, one step of a mechanism at a time among them.
MASKED = [*zoo.MECHANISMS, *zoo.POOLING, *zoo.RECURRENT]
MASKED += [f"{name}, step by step" for name in zoo.MECHANISMS]


@pytest.mark.parametrize("name", MASKED)
def test_what_a_mask_hides_may_be_nan_or_infinite(rng, name):
    """Outputs, and gradients of inputs and weights, are those of zeros in its place."""
    name, _, by_steps = name.partition(",")
    layer, inputs, masks = zoo.built(name), zoo.arrays(name, rng), zoo.masks(name)
    if name in zoo.MECHANISMS:  # a key of its own
        inputs, masks = [*inputs, normal(rng, *inputs[1].shape)], [*masks, "value_mask"]
    seen = {key: mask(rng, *x.shape[:2]) for key, x in zip(masks, inputs, strict=True)}
    if by_steps:
        seen["query_mask"][:] = True
    factors = []

    def call(arrays):
        if not by_steps:
            return zoo.call(name, layer, arrays, **seen)[:2]
        query, value, key = map(ops.convert_to_tensor, arrays)
        memory = layer.prepare(value, key, mask=ops.convert_to_tensor(seen["value_mask"]))
        state, found = layer.initial_state(memory), []
        for t in range(zoo.TQ):
            *outputs, state = layer.step(query[:, t], memory, state)
            found += outputs
        return found

    def total(arrays):
        outputs = call(arrays)
        if not factors:
            factors.extend(normal(rng, *x.shape) for x in outputs)
        return sum(weighted_sum(x, f) for x, f in zip(outputs, factors, strict=True))

    draws = [rng.random(x.shape) < 0.5 for x in inputs]

    def hidden(first, second):
        of_all = zip(masks, inputs, draws, strict=True)
        bad = [(seen[key][..., None], x, np.where(d, first, second)) for key, x, d in of_all]
        return [np.where(*one).astype("float32") for one in bad]

    def slopes_of_weights(arrays):  # JAX takes no gradient of a layer that has none
        return dict(layer.weights and weight_gradients(layer, lambda: total(arrays)))

    zeros, bad = hidden(0, 0), hidden(np.nan, -np.inf)
    assert_close(call(bad), array(call(zeros)))
    assert_close(gradients(total, bad), gradients(total, zeros), 1e-4)
    expected = slopes_of_weights(zeros)
    for path, slope in slopes_of_weights(bad).items():
        assert_close(slope, expected[path], 1e-4)
