import numpy as np
import pytest

from keras_attention import scores
from tests.keras_attention import reference
from tests.keras_attention.helpers import assert_close, normal

B, TQ, TV, DQ, DK, UNITS = 2, 3, 5, 7, 11, 13


@pytest.mark.parametrize(("batch", "length"), [(B, TV), (1, TV), (B, 1)])
def test_dot_is_the_product_of_query_and_key(rng, batch, length):
    query, key = normal(rng, batch, TQ, DQ), normal(rng, batch, length, DQ)
    assert_close(scores.dot(query, key), reference.score_all(reference.dot, query, key))


def test_scaled_dot_divides_by_the_root_of_the_width(rng):
    query, key = normal(rng, B, TQ, DQ), normal(rng, B, TV, DQ)
    expected = reference.score_all(reference.scaled_dot, query, key)
    assert_close(scores.scaled_dot(query, key), expected)


def test_general_joins_query_and_key_of_different_widths(rng):
    query, key, kernel = normal(rng, B, TQ, DQ), normal(rng, B, TV, DK), normal(rng, DQ, DK)
    expected = reference.score_all(lambda q, k: reference.general(q, k, kernel), query, key)
    assert_close(scores.general(query, key, kernel), expected)


def test_additive_is_the_scaled_tanh_of_the_sum(rng):
    query, key, scale = normal(rng, B, TQ, UNITS), normal(rng, B, TV, UNITS), normal(rng, UNITS)
    identity = np.eye(UNITS)
    expected = reference.score_all(
        lambda q, k: reference.additive(q, k, identity, identity, scale), query, key
    )
    assert_close(scores.additive(query, key, scale), expected)
