"""Layers of one sequence, attention pooling and positions, against NumPy loops."""

import itertools

import keras
import numpy as np
import pytest

from keras_attention import AttentionPooling, SinePositionEncoding
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

B, T, H, W, DIM = 2, 5, 3, 7, 12
CASES = [*itertools.product((1, 3), ("softmax",), (False, True), (False, True))]


@pytest.mark.parametrize(
    ("heads", "distribution", "masked", "with_key"), [*CASES, (3, "sparsemax", True, False)]
)
def test_heads_of_pooling_follow_the_formula(rng, heads, distribution, masked, with_key):
    """Of keys, if they are given, of another width than the values."""
    layer = AttentionPooling(6, distribution, num_heads=heads)
    layer = AttentionPooling.from_config(layer.get_config())
    value, allowed = normal(rng, B, T, 9), mask(rng, B, T) if masked else np.ones((B, T), bool)
    key = normal(rng, B, T, 7) if with_key else value
    given = {**({"mask": allowed} if masked else {}), **({"key": key} if with_key else {})}
    layer(value, **given)
    randomize(layer, rng)
    w = weights_of(layer)
    pooled, weights = array(layer(value, **given, return_attention_scores=True))
    for b in range(B):
        hidden = np.split(np.tanh(key[b] @ w["kernel"] + w["bias"]), heads, -1)
        for h, u in enumerate(np.split(w["scale"], heads)):
            expected = getattr(reference, distribution)(hidden[h] @ u, allowed[b])
            assert_close(weights.reshape(B, heads, T)[b, h], expected)
            assert_close(np.split(pooled[b], heads)[h], expected @ np.split(value[b], heads, -1)[h])


def test_pooling_with_keys_is_saved_and_keys_that_do_not_fit_are_told(rng, tmp_path):
    inputs = normal(rng, B, T, 9), normal(rng, B, T, 7), mask(rng, B, T)
    symbols = [keras.Input((None, *x.shape[2:]), dtype=x.dtype.name) for x in inputs]
    layer = AttentionPooling(6)
    made = layer(symbols[0], key=symbols[1], mask=symbols[2])
    assert made.shape == (None, 9)
    saved_and_loaded(keras.Model(symbols, made), list(inputs), rng, tmp_path)
    for wrong in ({"key": inputs[1][:, :3]}, {}):
        with pytest.raises(ValueError, match=r"AttentionPooling expected .*Received: value"):
            layer(inputs[0], **wrong)


def test_a_mask_that_the_value_carries_reaches_pooling_with_keys(rng):
    words = np.array([[3, 1, 0, 0], [2, 5, 4, 0]])
    value = keras.layers.Embedding(9, DIM, mask_zero=True)(words)
    _, weights = AttentionPooling(5)(value, key=normal(rng, 2, 4, 7), return_attention_scores=True)
    assert not array(weights)[words == 0].any()


def test_pooling_takes_a_grid_and_gives_zeros_where_all_is_masked(rng):
    layer, grid = AttentionPooling(7), normal(rng, B, H, W, DIM)
    expected = array(layer(grid.reshape(B, H * W, DIM)))
    assert_close(layer(grid), expected)
    pooled = array(layer(grid, mask=np.stack([np.ones((H, W), bool), np.zeros((H, W), bool)])))
    assert_close(pooled, [expected[0], np.zeros(DIM)])


@pytest.mark.parametrize("layer", [AttentionPooling(7), SinePositionEncoding()])
def test_integers_are_read_as_numbers(rng, layer):
    value = rng.integers(-3, 4, (B, T, DIM))
    assert_close(layer(value), array(layer(value.astype("float32"))))


def sine(place, dim, longest):
    row = np.zeros(dim)
    for i in range(dim // 2):
        angle = place / longest ** (2 * i / dim)
        row[2 * i], row[2 * i + 1] = np.sin(angle), np.cos(angle)
    return row


def test_sines_of_a_sequence_follow_the_formula_and_padding_on_the_left_moves_no_place(rng):
    layer, value = SinePositionEncoding(50.0), normal(rng, B, T, DIM)
    expected = np.stack([[sine(t, DIM, 50.0) for t in range(T)]] * B)
    assert_close(layer(value), expected)
    padded, valid = np.pad(value, [(0, 0), (3, 0), (0, 0)]), np.arange(T + 3) >= 3
    assert_close(layer(padded, mask=np.stack([valid] * B))[:, 3:], expected)


def test_sines_of_a_grid_have_rows_in_one_half_and_columns_in_the_other(rng):
    grid = normal(rng, B, H, W, DIM)
    expected = np.zeros_like(grid)
    for row, column in np.ndindex(H, W):
        expected[:, row, column, :6] += sine(row, 6, 10000.0)
        expected[:, row, column, 6:] += sine(column, 6, 10000.0)
    assert_close(SinePositionEncoding()(grid), expected)


def test_positions_save_load_and_pass_the_mask_on(rng, tmp_path):
    words = keras.Input((None,), dtype="int32")
    embedded = keras.layers.Embedding(9, DIM, mask_zero=True)(words)
    placed = keras.layers.Add()([embedded, SinePositionEncoding()(embedded)])
    model = keras.Model(words, keras.layers.GlobalAveragePooling1D()(placed))
    saved_and_loaded(model, np.array([[3, 1, 0], [2, 5, 4]]), rng, tmp_path)
    found = array(model(np.array([[3, 1, 0]])))
    assert_close(found, array(model(np.array([[3, 1, 0, 0, 0]]))))
