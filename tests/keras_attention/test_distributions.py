"""Where weights come from, against NumPy loops, and their gradients against finite differences."""

import numpy as np
import pytest
from keras import ops

from keras_attention import distributions
from keras_attention.mechanisms._monotonic import chunkwise
from tests.keras_attention import reference
from tests.keras_attention.helpers import (
    array,
    assert_close,
    few,
    gradient,
    mask,
    normal,
    second_derivative,
    weighted_sum,
)

B, TQ, TV = 2, 3, 11
NAMES = list(distributions.BY_NAME)
every_one = pytest.mark.parametrize("name", NAMES)


def rows(name, scores, allowed):
    result = np.zeros(scores.shape)
    for index in np.ndindex(scores.shape[:-1]):
        result[index] = getattr(reference, name)(scores[index], allowed[index])
    return result


# With the shape of a mask, if there is one.
SIZES = [(1, None), (TV, None), (257, None), (1, (B, TQ, 1)), (TV, (B, TQ, TV)), (TV, (1, TV))]


@pytest.mark.tensorflow  # operations of Keras alone, as other formulas here
@every_one
@pytest.mark.parametrize(("length", "masked"), SIZES)
def test_weights_follow_the_formula(rng, name, length, masked):
    scores = 2 * normal(rng, B, TQ, length)
    allowed = mask(rng, *masked) if masked else None
    whole = np.broadcast_to(True if allowed is None else allowed, scores.shape)
    result = array(distributions.BY_NAME[name](ops.convert_to_tensor(scores), allowed))
    assert_close(result, rows(name, scores, whole))
    assert not result[~whole].any()
    assert_close(result.sum(-1), np.ones((B, TQ)))


@pytest.mark.parametrize("name", [*NAMES, *distributions.MODES, "chunkwise"])
def test_what_is_masked_may_be_nan(rng, name):
    scores, upstream, allowed = normal(rng, B, TV), normal(rng, B, TV), mask(rng, B, TV)
    allowed[0, 1] = False
    previous = rng.dirichlet(np.ones(TV), size=B).astype("float32")

    def weigh(scores):
        if name == "chunkwise":
            return chunkwise(scores, ops.convert_to_tensor(previous), 2, allowed)
        if name in distributions.MODES:
            return distributions.monotonic(scores, previous, allowed, name)
        return distributions.BY_NAME[name](scores, allowed)

    def slope(scores):
        return gradient(lambda scores: weighted_sum(weigh(scores), upstream), scores)

    for bad in (np.nan, np.inf):
        hidden = np.where(allowed, scores, bad).astype("float32")
        found = array(weigh(ops.convert_to_tensor(hidden)))
        assert_close(found, array(weigh(ops.convert_to_tensor(scores))))
        assert_close(slope(hidden), slope(scores))


@every_one
def test_derivatives_are_finite_differences(rng, name):
    """First ones under a mask, and second ones along a line, where they are numbers."""
    scores, allowed, upstream = normal(rng, 3, 5), mask(rng, 3, 5), normal(rng, 3, 5)
    allowed[0] = np.arange(5) == 2  # a single place: its weight cannot change
    allowed[1] = True

    def loss(scores):
        return weighted_sum(distributions.BY_NAME[name](scores, allowed), upstream)

    def exact(scores):
        return (rows(name, scores, allowed) * upstream).sum()

    assert_close(gradient(loss, scores), reference.differences(exact, scores), 1e-4)
    direction, step, weigh = normal(rng, 5), 1e-3, getattr(reference, name)
    moved = [weigh(scores[1] + along * direction) @ upstream[1] for along in (-step, 0, step)]

    def sum_at(along):
        line = along * ops.convert_to_tensor(direction) + ops.convert_to_tensor(scores[1])
        return weighted_sum(distributions.BY_NAME[name](line), upstream[1])

    expected = np.dot(moved, (1, -2, 1)) / step**2
    np.testing.assert_allclose(second_derivative(sum_at), expected, rtol=1e-3, atol=1e-3)


@every_one
@pytest.mark.parametrize("dtype", few(["float16", "bfloat16", "float32"], "bfloat16"))
def test_visible_scores_may_be_as_low_as_there_are(rng, name, dtype):
    low = {"float16": -65504.0, "bfloat16": -3.3895e38, "float32": np.finfo("float32").min}[dtype]
    least = max(low, -1e30)
    scores = [[low, 3, low, 7], [low, low, low, 2], [least, 1, low, least], [low, 1, 2, low]]
    allowed = np.array([[1, 0, 1, 0], [1, 0, 1, 1], [1, 0, 0, 1], [0, 0, 0, 0]], "bool")
    scores = array(ops.cast(ops.cast(np.array(scores), dtype), "float32"))  # as the type holds them
    # Alone they share evenly, beside a higher one they have nothing.
    expected = np.array([[0.5, 0, 0.5, 0], [0, 0, 0, 1], [0.5, 0, 0, 0.5], [0, 0, 0, 0]])
    upstream = normal(rng, *scores.shape)

    def weigh(scores):
        return ops.cast(distributions.BY_NAME[name](ops.cast(scores, dtype), allowed), "float32")

    assert_close(weigh(ops.convert_to_tensor(scores)), expected, 4e-3)
    slope = gradient(lambda scores: weighted_sum(weigh(scores), upstream), scores)
    assert np.isfinite(slope).all()
    assert not slope[~allowed].any()


def test_parallel_mode_is_exact_where_the_product_underflows():
    length = 2000
    scores = np.full((1, length), -1.0, "float32")  # 0.73 ** 2000 is far below float32
    previous = np.eye(length, dtype="float32")[[1500]]
    result = array(distributions.monotonic(ops.convert_to_tensor(scores), previous))
    p = reference.sigmoid(-1.0)
    expected = np.where(np.arange(length) >= 1500, p * (1 - p) ** (np.arange(length) - 1500.0), 0)
    assert_close(result[0], expected, 1e-6)
