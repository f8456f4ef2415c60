"""The greatest elements of long rows, against NumPy's sort."""

import numpy as np
import pytest
from keras import ops

from keras_attention.search.arguments import top_k
from tests.keras_attention.helpers import array, normal

ROWS = 7


# A beam may be wider than the root of a vocabulary.
@pytest.mark.parametrize(("size", "k"), [(1999, 5), (2000, 5), (2503, 5), (2503, 51), (2503, 200)])
def test_the_best_tokens_of_a_large_vocabulary(rng, size, k):
    x = normal(rng, ROWS, size)
    x[0, size - 1] = x[1, 0] = 9.0  # at both ends
    x[2, 101:107] = np.linspace(11, 10, 6)  # all in one place
    x[3, :] = -np.inf
    x[3, 7] = 1.0  # hardly anything left
    values, index = (array(found) for found in top_k(ops.convert_to_tensor(x), k))
    expected = np.argsort(-x, axis=-1, kind="stable")[..., :k]
    np.testing.assert_array_equal(values, np.take_along_axis(x, expected, axis=-1))
    assert index.max() < size
    finite = np.isfinite(values)
    np.testing.assert_array_equal(index[finite], expected[finite])
    np.testing.assert_array_equal(np.take_along_axis(x, index, axis=-1), values)
