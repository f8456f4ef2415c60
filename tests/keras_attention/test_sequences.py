"""Layers of one sequence, attention pooling and positions, against NumPy loops."""

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


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("heads", "distribution"), [(1, "softmax"), (3, "softmax"), (3, "sparsemax")]
)
def test_heads_of_pooling_follow_the_formula(rng, heads, masked, distribution):
    layer = AttentionPooling(12, distribution, num_heads=heads)
    layer = AttentionPooling.from_config(layer.get_config())
    value, allowed = normal(rng, B, T, 9), mask(rng, B, T) if masked else np.ones((B, T), bool)
    layer.build(value.shape)
    randomize(layer, rng)
    w = weights_of(layer)
    given = {"mask": allowed} if masked else {}
    pooled, weights = array(layer(value, **given, return_attention_scores=True))
    weights = weights.reshape(B, heads, T)
    for b in range(B):
        hidden = np.split(np.tanh(value[b] @ w["kernel"] + w["bias"]), heads, -1)
        for h, u in enumerate(np.split(w["scale"], heads)):
            expected = getattr(reference, distribution)(hidden[h] @ u, allowed[b])
            assert_close(weights[b, h], expected)
            part = np.split(value[b], heads, -1)[h]
            assert_close(np.split(pooled[b], heads)[h], expected @ part)


@pytest.mark.parametrize("heads", [1, 3])
def test_pooling_weighs_values_by_keys_of_another_width(rng, heads, tmp_path):
    layer, value, key, allowed = (
        AttentionPooling(6, num_heads=heads),
        *(normal(rng, B, T, 9), normal(rng, B, T, 7), mask(rng, B, T)),
    )
    pooled, weights = layer(value, key=key, mask=allowed, return_attention_scores=True)
    randomize(layer, rng)
    w = weights_of(layer)
    assert w["kernel"].shape == (7, 6)
    pooled, weights = array(layer(value, key=key, mask=allowed, return_attention_scores=True))
    for b in range(B):
        hidden = np.split(np.tanh(key[b] @ w["kernel"] + w["bias"]), heads, -1)
        for h, u in enumerate(np.split(w["scale"], heads)):
            expected = reference.softmax(hidden[h] @ u, allowed[b])
            assert_close(weights.reshape(B, heads, T)[b, h], expected)
            assert_close(np.split(pooled[b], heads)[h], expected @ np.split(value[b], heads, -1)[h])
    symbols = keras.Input((None, 9)), keras.Input((None, 7)), keras.Input((None,), dtype="bool")
    made = AttentionPooling(6, num_heads=heads)(symbols[0], key=symbols[1], mask=symbols[2])
    assert made.shape == (None, 9)
    saved_and_loaded(keras.Model(symbols, made), [value, key, allowed], rng, tmp_path)
    wrong = [lambda: layer(value, key=key[:, :3]), lambda: layer(value)]
    for call in wrong:
        with pytest.raises(ValueError, match=r"AttentionPooling expected .*Received: value"):
            call()


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
