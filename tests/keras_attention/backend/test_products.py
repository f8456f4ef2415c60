"""What a backend has in a form of its own, against NumPy; the switch of fast paths, and XLA."""

import importlib
import inspect
import pkgutil
import resource
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import backend, fast, fast_paths, scores
from tests.keras_attention.helpers import assert_close, normal

B, N, S, DV = 3, 5, 7, 11
BACKEND = keras.backend.backend()


def traced(function, *arrays):
    """Call a function as a graph for any batch and lengths, where there are graphs."""
    if BACKEND != "tensorflow":
        return function(*map(ops.convert_to_tensor, arrays))
    import tensorflow as tf

    shapes = [tf.TensorSpec([None] * (x.ndim - 1) + [x.shape[-1]], tf.float32) for x in arrays]
    return tf.function(function, input_signature=shapes, autograph=False)(*arrays)


@pytest.mark.parametrize("small", [B * N * S * DV, B * N * S * DV - 1])
def test_the_average_is_the_product_of_weights_and_values_large_or_small(rng, small, monkeypatch):
    if BACKEND == "tensorflow":
        from keras_attention.backend import _on_tensorflow as on_tensorflow

        monkeypatch.setattr(on_tensorflow, "SMALL", small)
    weights, value = normal(rng, B, N, S), normal(rng, B, S, DV)
    assert_close(traced(backend.average, weights, value), np.einsum("bns,bsd->bnd", weights, value))


@pytest.mark.tensorflow
def test_an_average_of_2_31_products_needs_no_tensor_of_them():
    """In int32 the number of products would be negative, and taken for a small one: 8.6 GB."""
    import tensorflow as tf

    steps, places, width = 2**10, 2**11, 2**10
    shapes = [tf.TensorSpec([None, None, n]) for n in (None, width)]
    average = tf.function(backend.average, input_signature=shapes, autograph=False)
    weights, value = tf.ones([1, steps, places]), tf.ones([1, places, width])
    average(weights[:, :1], value)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**31, limits[1]))
    try:
        found = average(weights, value)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert_close(found, np.full((1, steps, width), places))


@pytest.mark.tensorflow
def test_places_in_rows_of_a_vocabulary_are_counted_in_int64():
    """A result of 2^31 elements is 8.6 GB: too many for a test, and not for a GPU."""
    import tensorflow as tf

    def loss(x, index):
        with tf.GradientTape() as tape:
            tape.watch(x)
            taken = backend.take_in_rows(x, index)
            total = tf.reduce_sum(backend.add_in_rows(taken, index, tf.shape(x)[2]))
        return tape.gradient(total, x)

    shapes = tf.TensorSpec([None, None, None]), tf.TensorSpec([None, None], tf.int32)
    graph = tf.function(loss, input_signature=shapes, autograph=False).get_concrete_function().graph
    sums = [op for op in graph.get_operations() if op.type == "UnsortedSegmentSum"]
    assert len(sums) == 2  # of the forward pass and of the gradient
    assert all(x.dtype == tf.int64 for op in sums for x in op.inputs[1:])


def test_elements_of_rows_are_taken_and_added_up(rng):
    x, index = normal(rng, B, N, S), rng.integers(0, S, (B, 4)).astype("int32")
    taken = x[np.arange(B)[:, None, None], np.arange(N)[:, None], index[:, None]]
    assert_close(backend.take_in_rows(*map(ops.convert_to_tensor, (x, index))), taken)
    added = np.zeros((B, N, 13), "float32")
    for b, n, s in np.ndindex(*taken.shape):
        added[b, n, index[b, s]] += taken[b, n, s]
    assert_close(backend.add_in_rows(*map(ops.convert_to_tensor, (taken, index)), 13), added)


@pytest.mark.parametrize("columns", [(), (DV,)])
def test_a_projection_is_the_product_over_the_last_axis(rng, columns):
    x, kernel = normal(rng, B, N, S), normal(rng, S, *columns)
    found = traced(lambda x: backend.project(x, ops.convert_to_tensor(kernel)), x)
    assert_close(found, np.tensordot(x, kernel, 1))


@pytest.mark.skipif(BACKEND != "jax", reason="needs the JAX backend")
def test_on_a_gpu_xla_fuses_the_sum_of_additive_scores(rng, monkeypatch):
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


def test_the_switch_turns_fast_paths_off_and_on_again():
    with fast_paths(False):
        assert not backend.settings.get().fast
        with fast_paths(True):
            assert backend.settings.get().fast
        assert not backend.settings.get().fast
    with pytest.raises(ZeroDivisionError), fast_paths(False):
        raise ZeroDivisionError
    assert backend.settings.get().fast


@pytest.mark.tensorflow
def test_what_xla_compiles_is_known():
    """TensorFlow says so by a private name alone."""
    import tensorflow as tf

    found = []

    def look(x):
        found.append(backend.under_xla())
        return tf.while_loop(
            lambda x: x < 3, lambda x: found.append(backend.under_xla()) or x + 1, [x]
        )

    for jit_compile in (False, True):
        tf.function(look, jit_compile=jit_compile, autograph=False)(tf.constant(0))
        assert set(found) == {jit_compile}
        del found[:]
    assert not backend.under_xla()


FAST = [module.name for module in pkgutil.iter_modules(fast.__path__, "keras_attention.fast.")]


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize("name", ["keras_attention.mechanisms._additive", *FAST])
def test_autograph_converts_functions(name):
    import tensorflow as tf

    for function in vars(importlib.import_module(name)).values():
        own = inspect.isfunction(function) and function.__module__ == name
        if own and not inspect.isgeneratorfunction(function):  # which run as they are
            tf.autograph.to_graph(function)
