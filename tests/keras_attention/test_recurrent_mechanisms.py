"""The attention RNN with every mechanism and gates; its ways to run."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import (
    AdditiveAttention,
    AttentionRNN,
    CoverageAttention,
    HoistedRNN,
    LocalAttention,
    LocationSensitiveAttention,
    MonotonicAttention,
    MonotonicChunkwiseAttention,
    MultiplicativeAttention,
)
from tests.keras_attention import reference
from tests.keras_attention.helpers import (
    array,
    assert_close,
    few,
    mask,
    normal,
    randomize,
    weight_gradients,
    weighted_sum,
    weights_of,
)

B, T, S, DIM, DV, UNITS, OUT = 2, 5, 3, 7, 6, 10, 11

MECHANISMS = {
    "additive": lambda: AdditiveAttention(8),
    "heads": lambda: AdditiveAttention(8, num_heads=2),
    "general heads": lambda: MultiplicativeAttention("general", num_heads=2),
    "local-m": lambda: LocalAttention(MultiplicativeAttention("general"), 1),
    "local-p heads": lambda: LocalAttention(
        MultiplicativeAttention("general", num_heads=2), 1, predictive=True
    ),
    "location-sensitive": lambda: LocationSensitiveAttention(8, 2, 3),
    "coverage": lambda: CoverageAttention(8),
    "monotonic": lambda: MonotonicAttention(AdditiveAttention(8)),
    "chunkwise": lambda: MonotonicChunkwiseAttention(
        AdditiveAttention(8), MultiplicativeAttention("general")
    ),
}


def built(rng, attention, cell=None, memory=(None, None, DV), **kwargs):
    cell = cell or keras.layers.GRUCell(UNITS)
    layer = AttentionRNN(cell, attention, return_attention_scores=True, **kwargs)
    layer.build((None, None, DIM), memory)
    randomize(layer, rng, 0.3)
    return layer


def stepwise(layer, inputs, memory, valid, memory_mask=None):
    """The outputs and weights of one `step` after the other; masked steps leave the state."""
    outputs, weights = [], []
    for b in range(len(inputs)):
        one = keras.tree.map_structure(lambda x, b=b: ops.convert_to_tensor(x[b : b + 1]), memory)
        one_mask = None
        if memory_mask is not None:
            one_mask = keras.tree.map_structure(
                lambda x, b=b: ops.convert_to_tensor(x[b : b + 1]), memory_mask
            )
        prepared = layer.prepare(one, mask=one_mask)
        state, row = layer.initial_state(prepared), []
        for t in range(inputs.shape[1]):
            x = ops.convert_to_tensor(inputs[b : b + 1, t])
            output, weight, new = layer.step(x, prepared, state)
            state = new if valid[b, t] else state
            row.append(keras.tree.map_structure(lambda x, v=valid[b, t]: array(x)[0] * v,
                                                (output, weight)))  # fmt: skip
        outputs.append(np.stack([o for o, _ in row]))
        weights.append(keras.tree.map_structure(lambda *xs: np.stack(xs, -2), *[w for _, w in row]))
    stack = keras.tree.map_structure(lambda *xs: np.stack(xs), *weights)
    return [np.stack(outputs), *keras.tree.flatten(stack)]


@pytest.mark.parametrize(
    ("name", "order", "feeding", "masked"),
    [
        *((name, "bahdanau", True, True) for name in few(MECHANISMS, "location-sensitive")),
        *((name, "luong", False, True) for name in few(MECHANISMS, "local-p heads")),
        ("coverage", "bahdanau", True, False),
        *((name, "luong", False, False) for name in few(["heads"])),
    ],
)
def test_the_sequence_is_one_step_after_the_other(rng, name, order, feeding, masked):
    layer = built(rng, MECHANISMS[name](), order=order, units=OUT, input_feeding=feeding)
    inputs, memory = normal(rng, B, T, DIM), normal(rng, B, S, DV)
    masks = (mask(rng, B, T), mask(rng, B, S)) if masked else (None, None)
    result = layer(inputs, memory, inputs_mask=masks[0], memory_mask=masks[1])
    valid = np.ones((B, T), bool) if masks[0] is None else masks[0]
    assert_close(result, stepwise(layer, inputs, memory, valid, masks[1]))
    symbolic = layer(keras.Input((T, DIM), B), keras.Input((S, DV), B))
    assert [x.shape for x in symbolic] == [tuple(x.shape) for x in result]


@pytest.mark.parametrize("order", ["bahdanau", "luong"])
def test_the_gate_is_a_sigmoid_of_the_state_that_asks(rng, order):
    layer = built(rng, AdditiveAttention(8), keras.layers.SimpleRNNCell(UNITS), order=order,
                  gate=True)  # fmt: skip
    inputs, memory = normal(rng, B, T, DIM), normal(rng, B, S, DV)
    w, cell = weights_of(layer.attention), weights_of(layer.cell)
    kernel, bias = (array(x.value).astype("float64") for x in (layer.gate_kernel, layer.gate_bias))
    outputs = array(layer(inputs, memory)[0])

    def look(state):
        context, _ = reference.attend(
            lambda q, k: reference.additive(q, k, w["query_kernel"], w["key_kernel"], w["scale"]),
            state[:, None],
            memory,
        )
        return reference.sigmoid(state @ kernel + bias) * context[:, 0]

    state = np.zeros((B, UNITS))
    for t in range(T):
        if order == "bahdanau":
            context = look(state)
            x = np.concatenate([inputs[:, t], context], -1)
            state, _ = reference.simple_rnn(x, [state], cell)
        else:
            state, _ = reference.simple_rnn(inputs[:, t], [state], cell)
            context = look(state)
        assert_close(outputs[:, t], np.concatenate([context, state], -1))


CELLS = {
    "SimpleRNN": keras.layers.SimpleRNNCell,
    "GRU": keras.layers.GRUCell,
    "GRU v1": lambda units: keras.layers.GRUCell(units, reset_after=False),
    "LSTM": keras.layers.LSTMCell,
}


@pytest.mark.tensorflow  # elsewhere it is the loop of its base class
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_hoisted_rnn_is_keras_rnn(rng, cell, backwards, masked):
    options = {"return_sequences": True, "return_state": True, "go_backwards": backwards}
    options["zero_output_for_mask"] = masked
    theirs = keras.layers.RNN(CELLS[cell](UNITS), **options)
    ours = HoistedRNN(CELLS[cell](UNITS), name=theirs.name, **options)
    inputs, valid = normal(rng, B, T, DIM), mask(rng, B, T) if masked else None
    for layer in (theirs, ours):
        layer.build(inputs.shape)
    randomize(theirs, rng, 0.3)
    ours.set_weights(theirs.get_weights())
    result, expected = ours(inputs, mask=valid), theirs(inputs, mask=valid)
    assert_close(list(result), [array(x) for x in expected])
    upstream = [normal(rng, *x.shape) for x in expected]

    def total(layer):
        found = layer(inputs, mask=valid)
        return sum(weighted_sum(x, u) for x, u in zip(found, upstream, strict=True))

    slopes = weight_gradients(theirs, lambda: total(theirs))
    found = weight_gradients(ours, lambda: total(ours))
    for (_, slope), (_, wanted) in zip(found.items(), slopes.items(), strict=True):
        assert_close(slope, wanted, 1e-4)


@pytest.mark.parametrize(("order", "feeding"), [("bahdanau", False), ("luong", False),
                                               ("luong", True)])  # fmt: skip
def test_dropout_of_the_attention_differs_from_step_to_step(rng, order, feeding):
    # The state never changes, nor does the memory: only dropout tells the steps apart.
    layer = AttentionRNN(
        keras.layers.SimpleRNNCell(UNITS, kernel_initializer="zeros"),
        MultiplicativeAttention("general", dropout=0.5, seed=3),
        order=order,
        input_feeding=feeding,
        return_attention_scores=True,
    )
    inputs, memory = normal(rng, B, T, DIM), normal(rng, B, 5, DV)
    outputs, weights = array(layer(inputs, memory, training=True))
    assert_close(weights, np.repeat(weights[:, :1], T, 1))
    assert (np.abs(outputs - outputs[:, :1]) > 1e-3).any()


def test_steps_in_training_draw_dropout_and_leave_nothing_behind(rng):
    cell = keras.layers.GRUCell(UNITS, dropout=0.5, recurrent_dropout=0.5, seed=3)
    layer = built(rng, CoverageAttention(8, dropout=0.5, seed=3), cell)
    memory = layer.prepare(ops.convert_to_tensor(normal(rng, B, S, DV)))
    x, state = ops.convert_to_tensor(normal(rng, B * 2, DIM)), layer.initial_state(memory)
    state = keras.tree.map_structure(lambda s: ops.repeat(s, 2, axis=0), state)
    first, second = (array(layer.step(x, memory, state, training=True)[0]) for _ in range(2))
    assert (first != second).any()
    plain = array(layer.step(x, memory, state)[0])
    assert_close(layer.step(x, memory, state)[0], plain)


@pytest.mark.tensorflow  # elsewhere the cell keeps its states
@pytest.mark.parametrize("cell", ["LSTM", "GRU"])
def test_in_half_precision_a_state_keeps_what_adds_up_slowly(rng, cell):
    # A thousandth of the state is added at each step: bfloat16 would round it away.
    steps, units = 97, 3
    policy = "mixed_bfloat16"
    ours = HoistedRNN(CELLS[cell](units, dtype=policy), return_state=True, dtype=policy)
    ours.build((None, steps, DIM))
    kernel, recurrent, bias = (np.zeros(w.shape, "float32") for w in ours.get_weights())
    if cell == "LSTM":  # c += sigmoid(-7) tanh(9), and h = c / 2 at the end
        bias[:] = np.repeat([-7, 99, 9, 99], units)
        slope, start = 1 / (1 + np.exp(7)), 0.5
        wanted = start + steps * slope
        initial = [np.zeros((B, units)), np.full((B, units), start)]
    else:  # h += sigmoid(-7) (tanh(9) - h)
        bias[0] = np.repeat([7, 0, 9], units)
        slope, start = 1 / (1 + np.exp(7)), 0.5
        wanted = 1 - (1 - start) * (1 - slope) ** steps
        initial = [np.full((B, units), start)]
    ours.set_weights([kernel, recurrent, bias])
    inputs = ops.zeros((B, steps, DIM), "bfloat16")
    initial = [ops.convert_to_tensor(x, "bfloat16") for x in initial]
    last = array(ops.cast(ours(inputs, initial_state=initial)[-1], "float32"))
    assert_close(last, np.full((B, units), wanted), 1e-2)
    assert abs(wanted - start) > 0.03
