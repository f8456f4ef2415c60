"""Products and steps with constant kernels against NumPy and the layers."""

import keras
import numpy as np
import pytest

from keras_attention import AdditiveAttention, AttentionRNN
from tests.keras_attention.helpers import array, assert_close, normal
from training.decode.constant.products import product, shortlist
from training.decode.constant.step import has_constant_step

pytestmark = pytest.mark.tensorflow

B, INPUTS, UNITS = 3, 7, 13
EPSILON = 2.0**-8  # of bfloat16, whose rounding is at most half of it


def rounded(x):
    """To bfloat16, by NumPy: half up, which differs from half to even on exact halves alone."""
    bits = np.ascontiguousarray(x, "float32").view("uint32")
    return ((bits + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).view("float32")


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
def test_a_product_in_float32_is_exact(rng, with_bias, single):
    x, kernel, bias = normal(rng, B, INPUTS), normal(rng, INPUTS, UNITS), normal(rng, UNITS)
    found = array(product(kernel, bias if with_bias else None, "float32", single)(x))
    assert_close(found, x.astype("float64") @ kernel + with_bias * bias)


@pytest.mark.parametrize("with_bias", [False, True])
def test_a_product_is_that_of_rounded_factors(rng, with_bias):
    x, kernel, bias = normal(rng, B, INPUTS), normal(rng, INPUTS, UNITS), normal(rng, UNITS)
    exact = rounded(x).astype("float64") @ rounded(kernel) + with_bias * rounded(bias)
    found = array(product(kernel, bias if with_bias else None)(x))
    assert found.dtype == "float32"
    size = np.abs(rounded(x)) @ np.abs(rounded(kernel)) + 1
    assert (np.abs(found - exact) < EPSILON * size).all()
    assert np.abs(found - exact).max() > 0


@pytest.mark.parametrize("scale", [1.0, 30.0])  # flat, and with all the mass on one token
def test_a_shortlist_has_the_best_logits_in_float32(rng, scale):
    size, k = 2503, 6
    x, kernel, bias = normal(rng, B, UNITS), scale * normal(rng, UNITS, size), normal(rng, size)
    logits = x.astype("float64") @ rounded(kernel) + bias
    log_probs, ids = array(shortlist(kernel, bias, k)(x))
    assert ids.dtype == "int32"
    assert [len(set(row)) for row in ids] == [k] * B
    best = np.argsort(-logits, axis=-1)
    for b in range(B):
        assert set(best[b, : k // 2]) <= set(ids[b])
    listed = np.take_along_axis(logits, ids, -1)
    # Differences of log-probabilities are those of logits, in float32.
    np.testing.assert_allclose(
        log_probs - log_probs[:, :1], listed - listed[:, :1], rtol=1e-5, atol=1e-4 * scale
    )
    greatest = logits.max(-1, keepdims=True)
    normaliser = greatest + np.log(np.exp(logits - greatest).sum(-1, keepdims=True))
    # Rounding moves the normaliser little: by that of the unlisted alone.
    np.testing.assert_allclose(log_probs, listed - normaliser, atol=0.02)


def test_cells_that_are_not_known_are_not_supported():
    lstm, additive = keras.layers.LSTMCell, AdditiveAttention
    stack = keras.layers.StackedRNNCells([lstm(3)] * 2)
    for rnn in (
        AttentionRNN(keras.layers.GRUCell(3, reset_after=False), additive(4)),
        AttentionRNN(stack, additive(4)),
        AttentionRNN(lstm(3), additive(4), gate=True),
        AttentionRNN(lstm(3), additive(4), units=5, readout="deep"),
        AttentionRNN(lstm(3), additive(4, num_heads=2)),
    ):
        assert not has_constant_step(rnn)
