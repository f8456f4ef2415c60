"""The length penalty of Wu et al. 2016, eq. 14, in each language; ONNX is held in `test_search`."""

import numpy as np
import pytest

from keras_attention.search import length_norm
from serving.portable.read import _model as model
from tests.serving.javascript import NODE, call

# Length, penalty and the divisor, computed by hand.
TABLE = [(1, 0.7, 1.0), (7, 1.0, 2.0), (13, 0.5, 3**0.5), (19, 2.0, 16.0), (31, 0.0, 1.0)]


@pytest.mark.parametrize(("length", "penalty", "norm"), TABLE)
def test_keras_and_python_divide_by_the_papers_norm(length, penalty, norm):
    assert np.asarray(length_norm([length, 1], penalty)) == pytest.approx([norm, 1], rel=1e-6)
    assert model.length_norm(length, penalty) == pytest.approx(norm)


@pytest.mark.skipif(NODE is None, reason="Node is not installed")
def test_javascript_divides_by_the_papers_norm():
    found = call("engine/search.js", "lengthNorm", [row[:2] for row in TABLE])
    assert found == pytest.approx([row[2] for row in TABLE])
