"""The attention RNN against a NumPy loop over time."""

import keras
import numpy as np
import pytest

from keras_attention import AdditiveAttention, AttentionRNN, MultiplicativeAttention
from tests.keras_attention import reference
from tests.keras_attention.helpers import (
    array,
    assert_close,
    few,
    mask,
    normal,
    randomize,
    weights_of,
)

B, T, S, DIM, DV, UNITS, OUT = 2, 5, 3, 7, 11, 13, 17

CELLS = {
    "SimpleRNN": lambda **kwargs: keras.layers.SimpleRNNCell(UNITS, **kwargs),
    "GRU": lambda **kwargs: keras.layers.GRUCell(UNITS, **kwargs),
    "LSTM": lambda **kwargs: keras.layers.LSTMCell(UNITS, **kwargs),
    "stacked": lambda **kwargs: keras.layers.StackedRNNCells(
        [keras.layers.GRUCell(5, **kwargs), keras.layers.LSTMCell(UNITS, **kwargs)]
    ),
    "stack of one": lambda **kwargs: keras.layers.StackedRNNCells(
        [keras.layers.LSTMCell(UNITS, **kwargs)]
    ),
}


def built(rng, cell="GRU", attention=None, **kwargs):
    attention = attention or MultiplicativeAttention("general")
    layer = AttentionRNN(CELLS[cell](), attention, return_attention_scores=True, **kwargs)
    layer.build((None, None, DIM), (None, None, DV))
    randomize(layer, rng, 0.3)
    return layer


def expected(layer, inputs, memory, **kwargs):
    cells = []
    for cell in getattr(layer.cell, "cells", [layer.cell]):
        count = len(keras.tree.flatten(cell.state_size))
        step = reference.CELLS[type(cell).__name__]
        cells.append((step, weights_of(cell), count, cell.units))
    kernel = weights_of(layer.attention)["kernel"]
    return reference.attention_rnn(
        cells,
        inputs,
        memory,
        lambda q, k: reference.general(q, k, kernel),
        layer.order,
        None if layer.units is None else array(layer.output_kernel.value).astype("float64"),
        layer.input_feeding,
        **kwargs,
    )


WAYS = {
    "bahdanau": ("bahdanau", False, None),
    "bahdanau feeding": ("bahdanau", True, OUT),
    "luong": ("luong", False, OUT),
    "luong feeding": ("luong", True, None),
}


@pytest.mark.parametrize(("order", "feeding", "units"), WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("cell", few(CELLS, "stacked"))
def test_sequence_follows_the_formula(rng, cell, order, feeding, units):
    layer = built(rng, cell, order=order, units=units, input_feeding=feeding, return_state=True)
    inputs, memory = normal(rng, B, T, DIM), normal(rng, B, S, DV)
    masks = mask(rng, B, T), mask(rng, B, S)
    outputs, state, weights = layer(inputs, memory, inputs_mask=masks[0], memory_mask=masks[1])
    states = keras.tree.flatten(state.cell)
    wanted = expected(layer, inputs, memory, masks=masks)
    assert_close((outputs, weights), wanted[:2])
    assert_close(states, wanted[2])
    assert not array(weights)[~(masks[0][:, :, None] & masks[1][:, None, :])].any()
    assert not array(outputs)[~masks[0]].any()


@pytest.mark.parametrize("cell", few(["LSTM", "stacked"], "stacked"))
@pytest.mark.parametrize("order", ["bahdanau", "luong"])
def test_initial_states_start_the_cell(rng, cell, order):
    layer = built(rng, cell, order=order)
    inputs, memory = normal(rng, B, T, DIM), normal(rng, B, S, DV)
    sizes = keras.tree.flatten(layer.cell.state_size)
    initial = [normal(rng, B, size) for size in sizes]
    result = layer(inputs, memory, initial_state=initial)
    assert_close(result, expected(layer, inputs, memory, initial=initial)[:2])


@pytest.mark.parametrize("feeding", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_without_return_sequences_the_last_valid_output_comes_back(rng, masked, feeding):
    layer = built(rng, units=OUT, input_feeding=feeding, return_sequences=False)
    inputs, memory = normal(rng, B, T, DIM), normal(rng, B, S, DV)
    valid = np.array([[True, False, True, False, False], [False, True, True, True, True]])
    valid = valid if masked else None
    output, weights = layer(inputs, memory, inputs_mask=valid)
    wanted = expected(layer, inputs, memory, masks=(valid, None))
    last = [2, 4] if masked else [4, 4]
    assert_close((output, weights), (wanted[0][range(B), last], wanted[1]))


@pytest.mark.parametrize("sequences", [False, True])
def test_masked_steps_give_zeros_whatever_the_activation_of_0_is(rng, sequences):
    layer = built(rng, return_sequences=sequences, units=OUT, activation="sigmoid")
    valid = np.array([[False] * T, [True] * T])
    output = array(layer(normal(rng, B, T, DIM), normal(rng, B, S, DV), inputs_mask=valid)[0])
    assert not output[0].any()
    assert output[1].all()


def test_implicit_masks_of_inputs_and_memory_are_obeyed(rng):
    layer = built(rng, return_state=True)
    ids, source = np.array([[4, 2, 5, 0], [1, 0, 0, 0]]), np.array([[3, 2, 0, 0, 0], [1] * 5])
    inputs = keras.layers.Embedding(7, DIM, mask_zero=True)(ids)
    memory = keras.layers.Embedding(7, DV, mask_zero=True)(source)
    outputs, state, weights = layer(inputs, memory)
    masks = ids != 0, source != 0
    wanted = expected(layer, array(inputs), array(memory), masks=masks)
    assert_close((outputs, state.cell[0], weights), (wanted[0], wanted[2][0], wanted[1]))
    assert_close(outputs._keras_mask, masks[0])


def test_the_cells_dropout_is_one_mask_a_sequence(rng):
    cell = keras.layers.SimpleRNNCell(
        UNITS, kernel_initializer="ones", recurrent_initializer="zeros", dropout=0.5, seed=3
    )
    layer = AttentionRNN(cell, MultiplicativeAttention("general"))
    inputs = np.full((B, T, DIM), 0.01, "float32")
    memory = np.full((B, S, DV), 0.01, "float32")
    outputs = array(layer(inputs, memory, training=True))
    assert_close(outputs, np.repeat(outputs[:, :1], T, 1))
    assert (outputs != array(layer(inputs, memory, training=True))).any()
    assert_close(layer(inputs, memory), array(layer(inputs, memory, training=False)))


@pytest.mark.parametrize(
    ("cell", "order"), [*((cell, "bahdanau") for cell in few(CELLS, "stacked")), ("GRU", "luong")]
)
def test_both_dropouts_of_every_cell_work_in_training(rng, cell, order):
    made = CELLS[cell](dropout=0.3, recurrent_dropout=0.3, seed=3)
    layer = AttentionRNN(made, AdditiveAttention(UNITS, dropout=0.3), order, input_feeding=True)
    inputs, memory = normal(rng, B, T, DIM), normal(rng, B, S, DV)
    trained = array(layer(inputs, memory, training=True))
    assert np.isfinite(trained).all()
    assert (trained != array(layer(inputs, memory))).any()
