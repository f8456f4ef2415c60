"""Attention pooling against a NumPy loop."""

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
    weights_of,
)

B, TV, DV, UNITS = 2, 7, 11, 13


def test_pooling_takes_a_grid_and_gives_zeros_where_all_is_masked(rng):
    layer = AttentionPooling(UNITS)
    grid = normal(rng, B, 2, 3, DV)
    expected = array(layer(grid.reshape(B, 6, DV)))
    assert_close(layer(grid), expected)
    pooled = array(layer(grid, mask=np.array([np.ones((2, 3), bool), np.zeros((2, 3), bool)])))
    assert_close(pooled[0], expected[0])
    assert not pooled[1].any()


@pytest.mark.parametrize("layer", [AttentionPooling(UNITS), SinePositionEncoding()])
def test_integers_are_read_as_numbers(rng, layer):
    value = rng.integers(-3, 4, (B, TV, 12))
    assert_close(layer(value), array(layer(value.astype("float32"))))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("distribution", ["softmax", "sparsemax"])
def test_heads_follow_the_formula(rng, heads, masked, distribution):
    layer = AttentionPooling(12, distribution, num_heads=heads)
    layer = AttentionPooling.from_config(layer.get_config())
    value, allowed = normal(rng, B, TV, 9), mask(rng, B, TV) if masked else np.ones((B, TV), bool)
    layer.build(value.shape)
    randomize(layer, rng)
    w = weights_of(layer)
    given = allowed if masked else None
    pooled, weights = array(layer(value, mask=given, return_attention_scores=True))
    weights = weights.reshape(B, heads, TV)
    for b in range(B):
        hidden = np.tanh(value[b] @ w["kernel"] + w["bias"])
        for h, u in enumerate(np.split(w["scale"], heads)):
            scores = np.split(hidden, heads, -1)[h] @ u
            expected = getattr(reference, distribution)(scores, allowed[b])
            assert_close(weights[b, h], expected)
            part = np.split(value[b], heads, -1)[h]
            assert_close(np.split(pooled[b], heads)[h], expected @ part)
