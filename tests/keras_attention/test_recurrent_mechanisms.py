"""The attention RNN with every mechanism, in a sequence and step by step."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import AttentionRNN, CoverageAttention, MultiplicativeAttention
from tests.keras_attention import zoo
from tests.keras_attention.helpers import array, assert_close, few, mask, normal, randomize

B, T, S, DIM, OUT = 2, 5, 3, 7, 11
WAYS = {"bahdanau": True, "luong": False}  # order, and whether the output is fed back


def built(rng, attention, widths, **options):
    """The layer with a cell as wide as the queries, for a memory as wide as the values."""
    cell = keras.layers.GRUCell(widths[0])
    layer = AttentionRNN(cell, attention, return_attention_scores=True, **options)
    layer.build((None, None, DIM), (None, None, widths[1]))
    randomize(layer, rng, 0.3)
    return layer


def stepwise(layer, inputs, memory, valid, memory_mask):
    """The outputs and weights of one `step` after the other; masked steps leave the state."""
    outputs, weights = [], []
    for b in range(len(inputs)):
        masked = None if memory_mask is None else ops.convert_to_tensor(memory_mask[b : b + 1])
        prepared = layer.prepare(ops.convert_to_tensor(memory[b : b + 1]), mask=masked)
        state, rows = layer.initial_state(prepared), []
        for t in range(inputs.shape[1]):
            x = ops.convert_to_tensor(inputs[b : b + 1, t])
            *found, new = layer.step(x, prepared, state)
            state = new if valid[b, t] else state
            rows.append([array(each)[0] * valid[b, t] for each in found])
        outputs.append(np.stack([output for output, _ in rows]))
        weights.append(np.stack([weight for _, weight in rows], -2))
    return np.stack(outputs), np.stack(weights)


@pytest.mark.parametrize(
    ("name", "order", "masked"),
    [
        *((name, "bahdanau", True) for name in few(zoo.MECHANISMS, "location_sensitive")),
        *((name, "luong", True) for name in few(zoo.MECHANISMS, "local_p", "general entmax")),
        ("coverage", "bahdanau", False),
        *((name, "luong", False) for name in few(["scaled_dot"])),
    ],
)
def test_the_sequence_is_one_step_after_the_other(rng, name, order, masked):
    widths, options = zoo.widths(name), {"order": order, "input_feeding": WAYS[order]}
    layer = built(rng, zoo.MECHANISMS[name](), widths, units=OUT, **options)
    inputs, memory = normal(rng, B, T, DIM), normal(rng, B, S, widths[1])
    masks = (mask(rng, B, T), mask(rng, B, S)) if masked else (None, None)
    result = layer(inputs, memory, inputs_mask=masks[0], memory_mask=masks[1])
    valid = np.ones((B, T), bool) if masks[0] is None else masks[0]
    assert_close(result, stepwise(layer, inputs, memory, valid, masks[1]))
    symbolic = layer(keras.Input((T, DIM), B), keras.Input(memory.shape[1:], B))
    assert [x.shape for x in symbolic] == [tuple(x.shape) for x in result]


@pytest.mark.parametrize(("order", "feeding"), [("bahdanau", False), ("luong", False),
                                               ("luong", True)])  # fmt: skip
def test_dropout_of_the_attention_differs_from_step_to_step(rng, order, feeding):
    # The state never changes, nor does the memory: only dropout tells the steps apart.
    layer = AttentionRNN(
        keras.layers.SimpleRNNCell(10, kernel_initializer="zeros"),
        MultiplicativeAttention("general", dropout=0.5, seed=3),
        order=order,
        input_feeding=feeding,
        return_attention_scores=True,
    )
    outputs, weights = array(layer(normal(rng, B, T, DIM), normal(rng, B, 5, 6), training=True))
    assert_close(weights, np.repeat(weights[:, :1], T, 1))
    assert (np.abs(outputs - outputs[:, :1]) > 1e-3).any()


def test_steps_in_training_draw_dropout_and_leave_nothing_behind(rng):
    layer = built(rng, CoverageAttention(8, dropout=0.5, seed=3), (10, 6))
    layer.cell.dropout = layer.cell.recurrent_dropout = 0.5
    memory = layer.prepare(ops.convert_to_tensor(normal(rng, B, S, 6)))
    x, state = ops.convert_to_tensor(normal(rng, B * 2, DIM)), layer.initial_state(memory)
    state = keras.tree.map_structure(lambda s: ops.repeat(s, 2, axis=0), state)
    first, second = (array(layer.step(x, memory, state, training=True)[0]) for _ in range(2))
    assert (first != second).any()
    plain = array(layer.step(x, memory, state)[0])
    assert_close(layer.step(x, memory, state)[0], plain)
