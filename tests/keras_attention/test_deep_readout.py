"""Bahdanau's deep output with maxout, step by step in NumPy."""

import keras
import numpy as np
import pytest

from keras_attention import AdditiveAttention, AttentionCell, AttentionRNN
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

B, T, S, DIM, DV, UNITS, OUT = 2, 5, 3, 7, 6, 10, 11


def formula(layer, inputs, memory, valid, order, feeding):
    """A loop over `C_o c + U_o s + V_o y` and the greater of each pair."""
    w, cell = weights_of(layer.attention), weights_of(layer.cell)
    parts = np.split(array(layer.output_kernel.value).astype("float64"), [DV, DV + UNITS])
    result = np.zeros((B, T, OUT))
    for b in range(B):
        state, fed = np.zeros((1, UNITS)), np.zeros((1, OUT))

        def look(state, b=b):
            score = lambda q, k: reference.additive(  # noqa: E731
                q, k, w["query_kernel"], w["key_kernel"], w["scale"]
            )
            return reference.attend(score, state[:, None], memory[b : b + 1])[0][:, 0]

        for t in np.flatnonzero(valid[b]):
            y = inputs[b : b + 1, t].astype("float64")
            x = np.concatenate([y, fed], -1) if feeding else y
            if order == "bahdanau":
                context = look(state)
                state, _ = reference.gru(np.concatenate([x, context], -1), [state], cell)
            else:
                state, _ = reference.gru(x, [state], cell)
                context = look(state)
            t_tilde = (context @ parts[0] + state @ parts[1] + y @ parts[2])[0]
            for j in range(OUT):
                result[b, t, j] = max(t_tilde[2 * j], t_tilde[2 * j + 1])
            fed = result[b : b + 1, t]
    return result


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("feeding", few([False, True], True))
@pytest.mark.parametrize("order", ["bahdanau", "luong"])
def test_it_is_the_formula(rng, order, feeding, masked):
    layer = AttentionRNN(
        keras.layers.GRUCell(UNITS),
        AdditiveAttention(8),
        order=order,
        units=OUT,
        readout="deep",
        input_feeding=feeding,
    )
    layer.build((None, None, DIM), (None, None, DV))
    assert tuple(layer.output_kernel.shape) == (DV + UNITS + DIM, 2 * OUT)
    randomize(layer, rng, 0.3)
    inputs, memory = normal(rng, B, T, DIM), normal(rng, B, S, DV)
    valid = mask(rng, B, T) if masked else np.ones((B, T), bool)
    expected = formula(layer, inputs, memory, valid, order, feeding)
    found = layer(inputs, memory, inputs_mask=valid if masked else None)
    assert_close(found, expected)
    layer.return_sequences = False
    last = layer(inputs, memory, inputs_mask=valid if masked else None)
    ends = T - 1 - np.argmax(valid[:, ::-1], axis=1)
    assert_close(last, expected[np.arange(B), ends])
    if masked:
        return
    cell = AttentionCell.from_config(
        AttentionCell(
            keras.layers.GRUCell(UNITS), AdditiveAttention(8), order=order, units=OUT,
            readout="deep", input_feeding=feeding,
        ).get_config()
    )  # fmt: skip
    cell.build((None, DIM), (None, None, DV))
    cell.set_weights(layer.get_weights())
    state = None
    for t in range(T):
        output, _, state = cell(inputs[:, t], memory, state)
        assert_close(output, expected[:, t])
