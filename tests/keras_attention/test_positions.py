"""Positions against their formulas, element by element."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import LearnedPositionEncoding, SinePositionEncoding, as_grid
from tests.keras_attention.helpers import array, assert_close, normal, randomize, saved_and_loaded

B, T, H, W, DIM = 2, 5, 3, 7, 12


def sine(place, dim, longest):
    row = np.zeros(dim)
    for i in range(dim // 2):
        angle = place / longest ** (2 * i / dim)
        row[2 * i], row[2 * i + 1] = np.sin(angle), np.cos(angle)
    return row


def test_sines_of_a_sequence_follow_the_formula(rng):
    value = normal(rng, B, T, DIM)
    expected = value + np.stack([sine(t, DIM, 50.0) for t in range(T)])
    assert_close(SinePositionEncoding(50.0)(value), expected)


def test_sines_of_a_grid_have_rows_in_one_half_and_columns_in_the_other(rng):
    grid = normal(rng, B, H, W, DIM)
    expected = grid.copy()
    for row, column in np.ndindex(H, W):
        expected[:, row, column, :6] += sine(row, 6, 10000.0)
        expected[:, row, column, 6:] += sine(column, 6, 10000.0)
    assert_close(SinePositionEncoding()(grid), expected)


def test_learned_vectors_are_those_of_the_place(rng):
    value, grid = normal(rng, B, T, DIM), normal(rng, B, H, W, DIM)
    layer = LearnedPositionEncoding(11)
    layer.build(value.shape)
    randomize(layer, rng)
    assert_close(layer(value), value + array(layer.position_kernel.value)[:T])
    layer = LearnedPositionEncoding((5, 11))
    layer.build(grid.shape)
    randomize(layer, rng)
    rows, columns = array(layer.row_kernel.value), array(layer.column_kernel.value)
    assert_close(layer(grid), grid + rows[:H, None] + columns[None, :W])


MAKERS = {"sine": SinePositionEncoding, "learned": lambda: LearnedPositionEncoding(11)}


@pytest.mark.parametrize("name", MAKERS)
def test_padding_on_the_left_moves_no_place(rng, name):
    layer, value = MAKERS[name](), normal(rng, B, T, DIM)
    expected = array(layer(value))
    padded = np.concatenate([normal(rng, B, 3, DIM), value], 1)
    valid = np.stack([np.arange(T + 3) >= 3] * B)
    assert_close(layer(padded, mask=valid)[:, 3:], expected)


@pytest.mark.parametrize("name", MAKERS)
def test_layers_save_load_and_pass_the_mask_on(rng, tmp_path, name):
    words = keras.Input((None,), dtype="int32")
    placed = MAKERS[name]()(keras.layers.Embedding(9, DIM, mask_zero=True)(words))
    model = keras.Model(words, keras.layers.GlobalAveragePooling1D()(placed))
    saved_and_loaded(model, np.array([[3, 1, 0], [2, 5, 4]]), rng, tmp_path)
    found = array(model(np.array([[3, 1, 0]])))
    assert_close(found, array(model(np.array([[3, 1, 0, 0, 0]]))))


def test_weights_of_a_grid_take_its_form(rng):
    weights = normal(rng, B, T, H * W)
    expected = weights.reshape(B, T, H, W)
    assert_close(as_grid(ops.convert_to_tensor(weights), (H, W)), expected)
    assert_close(as_grid(weights, (H, -1)), expected)
    assert as_grid(keras.Input((None, H * W)), (H, W)).shape == (None, None, H, W)


BAD = {
    "rank": (lambda: SinePositionEncoding()(np.ones((2, 4), "float32")), "(B, T, dim)"),
    "odd": (lambda: SinePositionEncoding()(np.ones((2, 4, 7), "float32")), "multiple of 2"),
    "grid": (lambda: SinePositionEncoding()(np.ones((2, 4, 3, 6), "float32")), "multiple of 4"),
    "wavelength": (lambda: SinePositionEncoding(0.5), "max_wavelength >= 1"),
    "length": (lambda: LearnedPositionEncoding(0), "max_length >= 1"),
    "long": (lambda: LearnedPositionEncoding(3)(np.ones((2, 4, 6), "float32")), "at most"),
    "no grid": (
        lambda: LearnedPositionEncoding((3, 3))(np.ones((2, 3, 6), "float32")),
        "a grid for two lengths",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_told(case):
    make, expected = BAD[case]
    with pytest.raises(ValueError, match=r"PositionEncoding expected .*Received: ") as error:
        make()
    assert expected in str(error.value)
