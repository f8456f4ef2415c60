"""Forward mode through large additive scores, on JAX and PyTorch: the formula has it."""

import keras
import numpy as np
import pytest

from keras_attention import fast_paths, scores
from keras_attention.fast import switch
from tests.keras_attention.helpers import array, assert_close, normal

BACKEND = keras.backend.backend()
pytestmark = [
    pytest.mark.skipif(BACKEND == "tensorflow", reason="has a test of its own"),
    # PyTorch scripts its forward mode by what it calls deprecated.
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
]


def forward(primals, tangents):
    """The derivative of additive scores along the tangents, by the backend's own forward mode."""
    if BACKEND == "jax":
        import jax

        return jax.jvp(scores.additive, primals, tangents)[1]
    import torch

    to_tensors = (tuple(map(torch.tensor, arrays)) for arrays in (primals, tangents))
    return torch.func.jvp(scores.additive, *to_tensors)[1]


def test_it_is_that_of_the_formula_and_is_told_where_to_be_had(rng, monkeypatch):
    for limit in ("BLOCK", "EAGER", "IN_PLACE"):
        monkeypatch.setattr(switch, limit, 100)
    shapes = (2, 5, 7), (2, 11, 7), (7,)
    primals, tangents = (tuple(normal(rng, *shape) for shape in shapes) for _ in range(2))
    (q, k, v), (dq, dk, dv) = primals, tangents
    hidden = np.tanh(q[:, :, None] + k[:, None])
    expected = ((1 - hidden**2) * (dq[:, :, None] + dk[:, None])) @ v + hidden @ dv
    with fast_paths(False):
        assert_close(forward(primals, tangents), expected)
    told = "forward-mode" if BACKEND == "jax" else "autograd.Function"
    with pytest.raises((TypeError, RuntimeError), match=told):
        array(forward(primals, tangents))
