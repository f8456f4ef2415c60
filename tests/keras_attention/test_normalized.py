"""Layer-normalised cells against NumPy loops."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import (
    AdditiveAttention,
    AttentionRNN,
    HoistedRNN,
    LayerNormGRUCell,
    LayerNormLSTMCell,
    MultiplicativeAttention,
)
from tests.keras_attention import reference
from tests.keras_attention.helpers import (
    array,
    assert_close,
    mask,
    normal,
    randomize,
    saved_and_loaded,
    weights_of,
)

B, T, S, DIM, DV, UNITS = 2, 5, 3, 7, 11, 13
CELLS = [LayerNormGRUCell, LayerNormLSTMCell]
both_cells = pytest.mark.parametrize("make", CELLS, ids=lambda make: make.__name__)


def states_of(rng, cell):
    return [normal(rng, B, size) for size in keras.tree.flatten(cell.state_size)]


@both_cells
def test_a_step_follows_the_formula(rng, make):
    cell = make(UNITS)
    cell.build((None, DIM))
    randomize(cell, rng)
    inputs, states = normal(rng, B, DIM), states_of(rng, cell)
    wanted = reference.CELLS[make.__name__](inputs, states, weights_of(cell))
    output, new = cell(inputs, states)
    assert_close((output, *new), (wanted[0], *wanted[1]))


@both_cells
def test_the_size_of_the_kernels_does_not_matter(rng, make):
    """Invariance to the scale of a whole weight matrix: the paper's table 1."""
    cell = make(UNITS, epsilon=1e-12)
    inputs, states = normal(rng, B, DIM), states_of(rng, cell)
    before = array(cell(inputs, states)[0])
    cell.kernel.assign(100 * cell.kernel)
    cell.recurrent_kernel.assign(0.01 * cell.recurrent_kernel)
    assert_close(cell(inputs, states)[0], before, 1e-4)


@pytest.mark.parametrize("order", ["bahdanau", "luong"])
@both_cells
def test_the_attention_rnn_runs_them(rng, make, order):
    attention = MultiplicativeAttention("general")
    layer = AttentionRNN(make(UNITS), attention, order, return_attention_scores=True)
    layer.build((None, None, DIM), (None, None, DV))
    randomize(layer, rng, 0.3)
    inputs, memory = normal(rng, B, T, DIM), normal(rng, B, S, DV)
    masks = mask(rng, B, T), mask(rng, B, S)
    kernel = weights_of(attention)["kernel"]
    count = len(keras.tree.flatten(layer.cell.state_size))
    wanted = reference.attention_rnn(
        [(reference.CELLS[make.__name__], weights_of(layer.cell), count, UNITS)],
        inputs,
        memory,
        lambda q, k: reference.general(q, k, kernel),
        order,
        masks=masks,
    )
    assert_close(layer(inputs, memory, inputs_mask=masks[0], memory_mask=masks[1]), wanted[:2])


@both_cells
def test_the_hoisted_rnn_leaves_them_to_keras(rng, make):
    layer = HoistedRNN(make(UNITS), return_sequences=True)
    inputs, valid = normal(rng, B, T, DIM), np.arange(T) < [[T], [3]]
    outputs = array(layer(inputs, mask=valid))
    states = [np.zeros((1, UNITS))] * len(keras.tree.flatten(layer.cell.state_size))
    for t in range(3):
        x, w = inputs[1:, t], weights_of(layer.cell)
        output, states = reference.CELLS[make.__name__](x, states, w)
        assert_close(outputs[1:, t], output)


@both_cells
def test_dropout_has_one_mask_for_all_gates_and_steps(rng, make):
    cell = make(UNITS, dropout=0.5, recurrent_dropout=0.5, seed=3)
    inputs, states = normal(rng, B, DIM), states_of(rng, cell)
    cell.build((B, DIM))
    masks = array([cell.get_dropout_mask(inputs), cell.get_recurrent_dropout_mask(states[0])])
    assert set(np.unique(masks[0])) == set(np.unique(masks[1])) == {0.0, 2.0}
    # The state that is fed back is dropped out; the part that is kept is not.
    weights = weights_of(cell)
    weights["kernel"] = inputs[:, :, None] * masks[0][:, :, None] * weights["kernel"]
    weights["recurrent_kernel"] = masks[1][:, :, None] * weights["recurrent_kernel"]
    for b in range(B):
        w = {name: w[b] if w.ndim == 3 else w for name, w in weights.items()}
        row = [state[b : b + 1] for state in states]
        wanted = reference.CELLS[make.__name__](np.ones((1, DIM)), row, w)[0]
        assert_close(cell(inputs, states, training=True)[0][b : b + 1], wanted)


@both_cells
def test_half_precision_keeps_its_type_and_normalises_in_float32(rng, make):
    layer = AttentionRNN(make(UNITS), AdditiveAttention(UNITS), dtype="mixed_bfloat16")
    cell = make(UNITS, dtype="mixed_bfloat16")
    inputs, states = 1000 * normal(rng, B, DIM), states_of(rng, cell)
    output, new = cell(inputs, [ops.cast(state, "bfloat16") for state in states])
    assert {keras.backend.standardize_dtype(x.dtype) for x in (output, *new)} == {"bfloat16"}
    assert np.isfinite(array(ops.cast(output, "float32"))).all()
    assert layer(normal(rng, B, T, DIM), normal(rng, B, S, DV)).shape == (B, T, DV + UNITS)


@both_cells
def test_a_saved_model_loads_without_custom_objects(rng, make, tmp_path):
    inputs, memory = keras.Input((None, DIM)), keras.Input((None, DV))
    layer = AttentionRNN(make(UNITS, epsilon=0.1, dropout=0.25), AdditiveAttention(UNITS))
    model = keras.Model([inputs, memory], layer(inputs, memory))
    arrays = normal(rng, B, T, DIM), normal(rng, B, S, DV)
    again = saved_and_loaded(model, arrays, rng, tmp_path)
    assert again.layers[-1].cell.get_config() == layer.cell.get_config()


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        (LayerNormGRUCell, {"use_bias": False}),
        (LayerNormGRUCell, {"reset_after": False}),
        (LayerNormLSTMCell, {"use_bias": False}),
    ],
)
def test_what_it_cannot_be_is_told(make, arguments):
    (argument,) = arguments
    with pytest.raises(ValueError, match=rf"{make.__name__} expected .*Received: .*{argument}="):
        make(UNITS, **arguments)
