"""Positions against their formulas, element by element."""

import keras
import numpy as np

from keras_attention import SinePositionEncoding
from tests.keras_attention.helpers import array, assert_close, normal, saved_and_loaded

B, T, H, W, DIM = 2, 5, 3, 7, 12


def sine(place, dim, longest):
    row = np.zeros(dim)
    for i in range(dim // 2):
        angle = place / longest ** (2 * i / dim)
        row[2 * i], row[2 * i + 1] = np.sin(angle), np.cos(angle)
    return row


def test_sines_of_a_sequence_follow_the_formula(rng):
    value = normal(rng, B, T, DIM)
    expected = np.stack([[sine(t, DIM, 50.0) for t in range(T)]] * B)
    assert_close(SinePositionEncoding(50.0)(value), expected)


def test_sines_of_a_grid_have_rows_in_one_half_and_columns_in_the_other(rng):
    grid = normal(rng, B, H, W, DIM)
    expected = np.zeros_like(grid)
    for row, column in np.ndindex(H, W):
        expected[:, row, column, :6] += sine(row, 6, 10000.0)
        expected[:, row, column, 6:] += sine(column, 6, 10000.0)
    assert_close(SinePositionEncoding()(grid), expected)


def test_padding_on_the_left_moves_no_place(rng):
    layer, value = SinePositionEncoding(), normal(rng, B, T, DIM)
    expected = array(layer(value))
    padded = np.concatenate([normal(rng, B, 3, DIM), value], 1)
    valid = np.stack([np.arange(T + 3) >= 3] * B)
    assert_close(layer(padded, mask=valid)[:, 3:], expected)


def test_layers_save_load_and_pass_the_mask_on(rng, tmp_path):
    words = keras.Input((None,), dtype="int32")
    embedded = keras.layers.Embedding(9, DIM, mask_zero=True)(words)
    placed = keras.layers.Add()([embedded, SinePositionEncoding()(embedded)])
    model = keras.Model(words, keras.layers.GlobalAveragePooling1D()(placed))
    saved_and_loaded(model, np.array([[3, 1, 0], [2, 5, 4]]), rng, tmp_path)
    found = array(model(np.array([[3, 1, 0]])))
    assert_close(found, array(model(np.array([[3, 1, 0, 0, 0]]))))
