"""Products that a backend gets in a form of its own, against NumPy."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import backend, scores
from tests.keras_attention.helpers import assert_close, normal

B, N, S, DV = 3, 5, 7, 11


def traced(function, *arrays):
    """Call a function as a graph for any batch and lengths, where there are graphs."""
    if keras.backend.backend() != "tensorflow":
        return function(*map(ops.convert_to_tensor, arrays))
    import tensorflow as tf

    shapes = [tf.TensorSpec([None] * (x.ndim - 1) + [x.shape[-1]], tf.float32) for x in arrays]
    return tf.function(function, input_signature=shapes, autograph=False)(*arrays)


@pytest.mark.parametrize("small", [B * N * S * DV, B * N * S * DV - 1])
def test_the_average_is_the_product_of_weights_and_values_large_or_small(rng, small, monkeypatch):
    if keras.backend.backend() == "tensorflow":
        from keras_attention.backend import on_tensorflow

        monkeypatch.setattr(on_tensorflow, "SMALL", small)
    weights, value = normal(rng, B, N, S), normal(rng, B, S, DV)
    assert_close(traced(backend.average, weights, value), np.einsum("bns,bsd->bnd", weights, value))


@pytest.mark.parametrize("columns", [(), (DV,)])
def test_a_projection_is_the_product_over_the_last_axis(rng, columns):
    x, kernel = normal(rng, B, N, S), normal(rng, S, *columns)
    found = traced(lambda x: backend.project(x, ops.convert_to_tensor(kernel)), x)
    assert_close(found, np.tensordot(x, kernel, 1))


def test_on_a_gpu_xla_fuses_the_sum_of_additive_scores(rng, monkeypatch):
    if keras.backend.backend() != "jax":
        pytest.skip("needs the JAX backend")
    import jax

    arrays = normal(rng, B, N, DV), normal(rng, B, S, DV), normal(rng, DV)

    def products():
        traced = jax.make_jaxpr(lambda *xs: scores.additive(*xs))  # anew each time
        return str(traced(*arrays)).count("dot_general")

    assert products() == 1
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert products() == 0
    hidden = np.tanh(arrays[0][:, :, None] + arrays[1][:, None])
    assert_close(jax.jit(lambda *xs: scores.additive(*xs))(*arrays), hidden @ arrays[2])
