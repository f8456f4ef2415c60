"""The attention RNN against a NumPy loop over time, with whatever Keras takes for a cell."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import AdditiveAttention, AttentionCell, AttentionRNN, MultiplicativeAttention
from tests.keras_attention import reference
from tests.keras_attention.helpers import (
    array,
    assert_close,
    mask,
    normal,
    randomize,
    weights_of,
)
from tests.keras_attention.test_mechanisms import at_0, looking, plain

B, T, S, DIM, DV, UNITS, OUT = 2, 5, 3, 7, 11, 13, 17


class Narrow(keras.layers.Layer):
    """A user's own cell: two states, of which the output is a part; nothing that is optional."""

    state_size = (UNITS, 3)
    output_size = 5

    def build(self, shape):
        self.kernel = self.add_weight((shape[-1] + UNITS, UNITS), name="kernel")

    def call(self, inputs, states):
        h, count = states
        h = ops.tanh(ops.matmul(ops.concatenate([inputs, h], -1), self.kernel))
        return h[:, :5] + ops.sum(count, -1, keepdims=True), [h, count + 1]


def narrow(x, states, w):
    h = np.tanh(np.concatenate([x, states[0]], -1) @ w["kernel"])
    return h[:, :5] + states[1].sum(-1, keepdims=True), [h, states[1] + 1]


STEPS = {**reference.CELLS, "Narrow": narrow}
CELLS = {
    "SimpleRNN": lambda **kwargs: keras.layers.SimpleRNNCell(UNITS, **kwargs),
    "GRU": lambda **kwargs: keras.layers.GRUCell(UNITS, **kwargs),
    "LSTM": lambda **kwargs: keras.layers.LSTMCell(UNITS, **kwargs),
    "stacked": lambda **kwargs: keras.layers.StackedRNNCells(
        [keras.layers.GRUCell(5, **kwargs), keras.layers.LSTMCell(UNITS, **kwargs)]
    ),
    "stack of one": lambda **kwargs: keras.layers.StackedRNNCells([CELLS["LSTM"](**kwargs)]),
    "narrow": Narrow,
}
FED = {
    "bahdanau": {"input_feeding": True, "units": OUT},
    "luong": {"input_feeding": True, "order": "luong"},
}
WAYS = {
    **{f"{name}, fed": options for name, options in FED.items()},
    "bahdanau": {},
    "luong": {"order": "luong", "units": OUT},
    "deep": {"units": OUT, "readout": "maxout"},
    "luong, deep, fed": {**FED["luong"], "units": OUT, "readout": "maxout"},
    "gate": {"gate": True},
    "luong, gate": {"order": "luong", "gate": True, "units": OUT, "activation": "relu"},
}
# Every cell with what feeds all back; the other ways with one in turn.
PAIRS = [*itertools.product(CELLS, list(WAYS)[:2]), *zip(CELLS, list(WAYS)[2:], strict=True)]


def built(rng, cell="GRU", **options):
    layer = AttentionRNN(
        CELLS[cell](), MultiplicativeAttention("general"), return_attention_scores=True, **options
    )
    layer.build((None, None, DIM), (None, None, DV))
    randomize(layer, rng, 0.3)
    return layer


def expected(layer, inputs, memory, masks=(None, None), initial=None, look=None):
    """What the formulas give with the layer's weights."""
    cells = [
        (STEPS[type(cell).__name__], weights_of(cell), keras.tree.flatten(cell.state_size))
        for cell in getattr(layer.cell, "cells", [layer.cell])
    ]
    w = weights_of(layer)

    def read_out(pair, y):
        """`tanh(W [c; s])`, or the greater of each pair of `C_o c + U_o s + V_o y`."""
        if not layer.units:
            return pair
        if layer.readout == "maxout":
            hidden = np.concatenate([pair, y]) @ w["output_kernel"]
            return np.maximum(hidden[0::2], hidden[1::2])
        hidden = pair @ w["output_kernel"]
        return np.tanh(hidden) if layer.activation is keras.activations.tanh else hidden.clip(0)

    def gate(query):
        return reference.sigmoid(query @ w["gate_kernel"] + w["gate_bias"]) if layer.gate else 1.0

    return reference.attention_rnn(
        cells,
        inputs,
        memory,
        look or looking(layer.attention, plain, at_0),
        order=layer.order,
        size=layer.output_size,
        read_out=read_out,
        gate=gate,
        feeding=layer.input_feeding,
        masks=masks,
        initial=initial,
    )


def data(rng):
    return normal(rng, B, T, DIM), normal(rng, B, S, DV)


@pytest.mark.parametrize(("cell", "way"), PAIRS)
def test_sequence_follows_the_formula(rng, cell, way):
    layer, (inputs, memory) = built(rng, cell, **WAYS[way], return_state=True), data(rng)
    masks = mask(rng, B, T), mask(rng, B, S)
    # Those that feed all back start from a state, the others from zeros.
    sizes = keras.tree.flatten(layer.cell.state_size)
    initial = [normal(rng, B, size) for size in sizes] if way in list(WAYS)[:2] else None
    given = {"inputs_mask": masks[0], "memory_mask": masks[1], "initial_state": initial}
    outputs, state, weights = layer(inputs, memory, **given)
    wanted = expected(layer, inputs, memory, masks=masks, initial=initial)
    assert_close((outputs, weights), wanted[:2])
    assert_close(keras.tree.flatten(state.cell), wanted[2])
    assert not array(weights)[~(masks[0][:, :, None] & masks[1][:, None, :])].any()
    assert not array(outputs)[~masks[0]].any()


@pytest.mark.parametrize(
    ("way", "masked"), [("luong", True), ("bahdanau, fed", True), ("deep", True), ("deep", False)]
)
def test_without_return_sequences_the_last_valid_output_comes_back(rng, masked, way):
    layer, (inputs, memory) = built(rng, **WAYS[way], return_sequences=False), data(rng)
    valid = np.array([[True, False, True, False, False], [False, True, True, True, True]])
    valid = valid if masked else None
    output, weights = layer(inputs, memory, inputs_mask=valid)
    wanted = expected(layer, inputs, memory, masks=(valid, None))
    last = [2, 4] if masked else [4, 4]
    assert_close((output, weights), (wanted[0][range(B), last], wanted[1]))


@pytest.mark.parametrize("sequences", [False, True])
def test_masked_steps_give_zeros_whatever_the_activation_of_0_is(rng, sequences):
    layer = built(rng, return_sequences=sequences, units=OUT, activation="sigmoid")
    output = array(layer(*data(rng), inputs_mask=np.array([[False] * T, [True] * T]))[0])
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


def test_a_cell_called_again_and_again_is_the_layer(rng):
    options = WAYS["luong, deep, fed"]
    layer, (inputs, memory) = built(rng, **options), data(rng)
    cell = AttentionCell(CELLS["GRU"](), MultiplicativeAttention("general"), **options)
    cell = AttentionCell.from_config(cell.get_config())
    cell.build((None, DIM), (None, None, DV))
    cell.set_weights(layer.get_weights())
    outputs, state = array(layer(inputs, memory)[0]), None
    for t in range(T):
        output, _, state = cell(inputs[:, t], memory, state)
        assert_close(output, outputs[:, t])


@pytest.mark.parametrize("default", [False, True])
def test_the_call_decides_whether_weights_come_back(rng, default):
    inputs, memory = data(rng)
    layer = AttentionRNN(CELLS["GRU"](), AdditiveAttention(5), return_attention_scores=default)
    outputs, weights = layer(inputs, memory, return_attention_scores=True)
    assert tuple(weights.shape) == (B, T, S)
    assert_close(layer(inputs, memory, return_attention_scores=False), array(outputs))
    assert isinstance(layer(inputs, memory), tuple) == default
    symbols = keras.Input((T, DIM)), keras.Input((S, DV))
    assert isinstance(layer(*symbols, return_attention_scores=not default), tuple) != default


# Dropout of the cell.


def test_the_cells_dropout_is_one_mask_a_sequence(rng):
    cell = keras.layers.SimpleRNNCell(
        UNITS, kernel_initializer="ones", recurrent_initializer="zeros", dropout=0.5, seed=3
    )
    layer = AttentionRNN(cell, MultiplicativeAttention("general"))
    inputs, memory = (np.full((B, n, width), 0.01, "float32") for n, width in ((T, DIM), (S, DV)))
    outputs = array(layer(inputs, memory, training=True))
    assert_close(outputs, np.repeat(outputs[:, :1], T, 1))
    assert (outputs != array(layer(inputs, memory, training=True))).any()
    assert_close(layer(inputs, memory), array(layer(inputs, memory, training=False)))


@pytest.mark.parametrize(
    ("cell", "order"), [("stacked", "bahdanau"), ("SimpleRNN", "bahdanau"), ("SimpleRNN", "luong")]
)
def test_dropouts_of_every_cell_work_in_training_and_inference_draws_none(rng, cell, order):
    (inputs, memory), layers = data(rng), []
    for _ in range(2):
        made = CELLS[cell](dropout=0.3, recurrent_dropout=0.3, seed=3)
        layers.append(AttentionRNN(made, AdditiveAttention(UNITS, dropout=0.3, seed=5), order))
        layers[-1].build(inputs.shape, memory.shape)
        randomize(layers[-1], np.random.default_rng(5))
    fresh, used = layers
    plain = array(used(inputs, memory))
    prepared = used.prepare(ops.convert_to_tensor(memory))
    step = ops.convert_to_tensor(inputs[:, 0]), prepared, used.initial_state(prepared)
    assert_close(used.step(*step)[0], array(used.step(*step)[0]))
    for _ in range(2):
        trained = array(fresh(inputs, memory, training=True))
        assert_close(used(inputs, memory, training=True), trained)
        assert (trained != plain).any()
    assert (trained != array(used(inputs, memory, training=True))).any()
    drawn = [array(used.step(*step, training=True)[0]) for _ in range(2)]
    assert (drawn[0] != drawn[1]).any()
    assert_close(used(inputs, memory), plain)


@pytest.mark.parametrize(
    ("order", "feeding"), [("bahdanau", False), ("luong", False), ("luong", True)]
)
def test_dropout_of_the_attention_differs_from_step_to_step(rng, order, feeding):
    # The state never changes, nor does the memory: only dropout tells the steps apart.
    cell = keras.layers.SimpleRNNCell(UNITS, kernel_initializer="zeros")
    attention = MultiplicativeAttention("general", dropout=0.5, seed=3)
    layer = AttentionRNN(cell, attention, order, input_feeding=feeding)
    outputs, weights = array(layer(*data(rng), training=True, return_attention_scores=True))
    assert_close(weights, np.repeat(weights[:, :1], T, 1))
    assert (np.abs(outputs - outputs[:, :1]) > 1e-3).any()
