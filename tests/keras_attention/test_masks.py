"""Padding changes nothing, on whichever side it stands and however the mask is written."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import (
    AdditiveAttention,
    AttentionRNN,
    HoistedRNN,
    SinePositionEncoding,
    losses,
)
from tests.keras_attention.helpers import array, assert_close, few, mask, normal, randomize
from tests.keras_attention.test_losses import FORMULAS

B, TQ, TV, DIM = 2, 3, 5, 6


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


def test_what_is_no_mask_is_told(rng):
    layer, value = AdditiveAttention(7), normal(rng, B, TV, DIM)
    layer(value, value)
    masks = [np.ones((B, TQ), bool), np.ones((B, TV), bool)]
    lengths, several = r"arange\(5\) < lengths\[:, None\]", r"^\w+ expected one \w*mask \(2, 5\)"
    for call, told in (
        (lambda: layer.prepare(value, mask=np.array([5, 3])), lengths),
        (lambda: layer(value, value, value_mask=[5, 3]), lengths),
        (lambda: layer(value, value, value_mask=masks), several),
        (lambda: SinePositionEncoding()(value, mask=[None, masks[1]]), several),
    ):
        with pytest.raises(ValueError, match=told) as error:
            call()
        assert "\n" not in str(error.value)


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


# Losses of weights.

SOURCE = np.array([[3, 1, 4, 0, 0], [1, 5, 2, 6, 3]])
TARGET = np.array([[2, 6, 0], [5, 3, 4]])
LENGTHS = [(2, 3), (3, 5)]


def with_loss(make, name, rng, **options):
    """A model with the loss of its weights, where padding is 0."""
    source, target = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    embedding, masks = keras.layers.Embedding(7, DIM), {"rows": target != 0, "columns": source != 0}
    outputs, weights = make(embedding(target), embedding(source), **masks)
    outputs = losses.AttentionLoss(name, **options)(
        outputs, weights, outputs_mask=masks["rows"], memory_mask=masks["columns"]
    )
    model = keras.Model([source, target], [keras.layers.Dense(2)(outputs), weights])
    randomize(model, rng)
    return model


def attending(target, source, rows, columns):
    return AdditiveAttention(5)(
        target, source, query_mask=rows, value_mask=columns, return_attention_scores=True
    )


def decoding(order):
    def make(target, source, rows, columns):
        decoder = AttentionRNN(keras.layers.GRUCell(7), AdditiveAttention(5), order)
        masks = {"inputs_mask": rows, "memory_mask": columns}
        return decoder(target, source, return_attention_scores=True, **masks)

    return make


MAKERS = {"rnn": decoding("bahdanau"), "rnn luong": decoding("luong"), "attention": attending}


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("maker", few(MAKERS, "rnn"))
def test_padding_does_not_change_the_loss_of_a_model(rng, maker, name):
    model = with_loss(MAKERS[maker], name, rng, weight=0.5)
    for padding in (0, 3):
        more = [[0, 0], [0, padding]]
        weights = array(model([np.pad(SOURCE, more), np.pad(TARGET, more)])[1])
        expected = [
            FORMULAS[name](weights[b, :t, :s].astype("float64")) for b, (t, s) in enumerate(LENGTHS)
        ]
        (loss,) = model.losses
        assert_close(loss, 0.5 * np.mean(expected))


def test_the_outputs_bring_their_mask_to_the_loss(rng):
    embedding = keras.layers.Embedding(7, DIM, mask_zero=True)
    decoder = AttentionRNN(keras.layers.GRUCell(7), AdditiveAttention(5))
    outputs, weights = decoder(embedding(TARGET), embedding(SOURCE), return_attention_scores=True)
    layer = losses.AttentionLoss("coverage")
    passed = layer(outputs, weights)
    expected = losses.coverage(weights, TARGET != 0)
    assert_close(layer.losses[0], array(expected).mean())
    assert_close(passed._keras_mask, TARGET != 0)
