"""Additive scores without the large tensor, against a loop over the formula."""

import functools
import importlib

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import AdditiveAttention, backend, exporting, fast_paths, scores
from tests.keras_attention.helpers import array, assert_close, compiled, leaves, normal, slopes

BACKEND = keras.backend.backend()
slow_on_tensorflow = [pytest.mark.slow] if BACKEND == "tensorflow" else []  # XLA takes seconds
B, TQ, TV, UNITS = 3, 11, 7, 13


@pytest.fixture
def calls(monkeypatch):
    """Small scores count as large, in several blocks; lists what did not take the formula."""
    own = importlib.import_module(f"keras_attention.backend._on_{BACKEND}")
    monkeypatch.setattr(own, "LARGEST_FORMULA", 1)
    blocks = own
    if BACKEND == "tensorflow":
        from keras_attention.backend import _tensorflow_additive as blocks

    monkeypatch.setattr(blocks, "BLOCK", 1000, raising=False)
    found, additive = [], backend.additive

    def watched(*args):
        result = additive(*args)
        if result is not None:
            found.append(args)
        return result

    monkeypatch.setattr(backend, "additive", watched)
    return found


def reference(query, key, scale, upstream):
    """Scores and the gradients of their weighted sum, float64; a single sentence is repeated."""
    query, key, scale, upstream = (np.float64(x) for x in (query, key, scale, upstream))
    hidden = np.tanh(query[:, :, None] + key[:, None])  # (B, TQ, TV, units)
    slope = upstream[..., None] * scale * (1 - hidden**2)
    slopes = [
        found.sum(0, keepdims=True) if len(x) == 1 else found
        for x, found in ((query, slope.sum(2)), (key, slope.sum(1)))
    ]
    return hidden @ scale, [*slopes, np.einsum("bij,biju->u", upstream, hidden)]


def inputs(rng, batch=B, queries=TQ, keys=TV, units=UNITS, size=1.0):
    return [
        size * normal(rng, batch, queries, units),
        size * normal(rng, batch, keys, units),
        normal(rng, units),
        normal(rng, batch, queries, keys),
    ]


def in_graph(function, *shapes, jit_compile=None):
    """The function as a graph, of tensors of these shapes; on PyTorch itself, which is eager."""
    if BACKEND != "tensorflow":
        return compiled(function)
    import tensorflow as tf

    options = {"input_signature": [tf.TensorSpec(shape) for shape in shapes]} if shapes else {}
    return tf.function(function, autograph=False, jit_compile=jit_compile, **options)


def holds(*cases, tolerance=1e-5, run=in_graph):
    """Scores and gradients are the formula's, by one program for all cases."""

    def both(*tensors):
        *tensors, upstream = tensors
        with backend.with_settings(training=True):
            found = slopes(lambda *xs: ops.sum(scores.additive(*xs) * upstream), tensors)
            return scores.additive(*tensors), found

    program = run(both)
    for *arrays, upstream in cases:
        result, found = program(*leaves(arrays), ops.convert_to_tensor(upstream))
        expected, expected_slopes = reference(*arrays, upstream)
        detached = [x.detach() if BACKEND == "torch" else x for x in (result, *found)]
        assert_close(detached, [expected, *expected_slopes], tolerance)


# A block for each sentence; of sentences, the last ragged; of queries, the last ragged.
BLOCKS = [(7, 11, 13, 29), (17, 5, 7, UNITS), (2, 29, 23, 31)]


@pytest.mark.parametrize(
    "sizes", [(B, TQ, TV, UNITS), *(pytest.param(x, marks=slow_on_tensorflow) for x in BLOCKS)]
)
def test_scores_and_gradients_follow_the_formula(rng, calls, sizes):
    query, key, scale, upstream = given = inputs(rng, *sizes)
    shift = 50.0 * np.sign(normal(rng, sizes[-1]))
    # What exponentials do not hold is right as well.
    cancelling, zero = [query + shift, key - shift], [query - 60, key + 15]
    large = inputs(rng, *sizes, size=1e4)
    holds(given, [*cancelling, scale, upstream], [*zero, scale, upstream], large, tolerance=2e-5)
    assert calls


def test_a_single_sentence_is_repeated_and_batches_that_differ_are_refused(rng):
    query, key, scale, upstream = inputs(rng)
    for arrays in ([query[:1], key], [query, key[:1]]):
        holds([*arrays, scale, upstream])
    with pytest.raises(ValueError, match=r"expected .* one batch size, or of 1. Received: query"):
        scores.additive(query, key[:2], scale)


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [("bfloat16", 2e-2), pytest.param("float16", 2e-3, marks=slow_on_tensorflow)],
)
def test_half_precision_is_computed_in_float32(rng, calls, dtype, tolerance):
    arrays = [ops.cast(ops.convert_to_tensor(x), dtype) for x in inputs(rng, units=509)[:3]]
    result = in_graph(scores.additive)(*arrays)
    assert keras.backend.standardize_dtype(result.dtype) == dtype
    expected, _ = reference(*(array(ops.cast(x, "float32")) for x in arrays), np.zeros((B, TQ, TV)))
    assert_close(ops.cast(result, "float32"), expected, tolerance)  # one rounding of the result
    assert calls


def test_second_derivatives_are_those_of_the_formula(rng, calls):
    """No way is computed twice: the formula's are by autodiff all through."""
    arrays = inputs(rng, 2, 5, 7, 11)

    def loss(*tensors):
        return ops.sum(scores.additive(*tensors) ** 2 * ops.convert_to_tensor(arrays[3]))

    def squares(*tensors):
        return sum(ops.sum(g**2) for g in slopes(loss, list(tensors), again=True))

    def second():
        return in_graph(lambda *xs: slopes(squares, list(xs)))(*leaves(arrays[:3]))

    with fast_paths(False):
        expected = array(second())
    assert not calls
    result = second()
    assert calls
    scale = max(np.abs(x).max() for x in expected)
    assert_close([x / scale for x in result], [x / scale for x in expected], 1e-5)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
@pytest.mark.skipif(BACKEND == "tensorflow", reason="it has no such transforms")
def test_forward_mode_is_that_of_the_formula(rng, calls):
    shapes = (2, 5, 7), (2, 11, 7), (7,)
    primals, tangents = (
        tuple(ops.convert_to_tensor(normal(rng, *shape)) for shape in shapes) for _ in range(2)
    )
    if BACKEND == "jax":
        import jax

        result = jax.jit(lambda *xs: jax.jvp(scores.additive, primals, xs)[1])(*tangents)
        assert calls
    else:
        import torch

        result = torch.func.jvp(scores.additive, primals, tangents)[1]
    (q, k, v), (dq, dk, dv) = ([array(x) for x in xs] for xs in (primals, tangents))
    hidden = np.tanh(q[:, :, None] + k[:, None])
    expected = ((1 - hidden**2) * (dq[:, :, None] + dk[:, None])) @ v + hidden @ dv
    assert_close(result, expected)


def test_the_formula_runs_where_it_serves(rng, calls):
    def take(*arrays):
        del calls[:]
        in_graph(lambda *xs: scores.additive(*xs))(*map(ops.convert_to_tensor, arrays))
        return len(calls)

    query, key, scale, _ = inputs(rng)
    assert take(query, key, scale) == 1
    with fast_paths(False):
        assert take(query, key, scale) == 0
    assert take(query[:, :1], key, scale) == 0
    assert take(query, key[:, :1], scale) == 0
    assert take(query[:1], key, scale) == 0
    if BACKEND != "torch":  # operation by operation
        scores.additive(query, key, scale)
        assert not calls


@pytest.mark.skipif(BACKEND != "torch", reason="of PyTorch")
def test_autocast_and_compiled_functions_keep_float32(rng, calls):
    import torch

    with torch.autocast("cpu", torch.bfloat16):
        holds(inputs(rng))
    assert calls

    class Module(torch.nn.Module):
        def forward(self, query, key, scale):
            return scores.additive(query, key, scale)

    del calls[:]
    arrays = [torch.tensor(x) for x in inputs(rng)[:3]]
    exported = torch.export.export(Module(), tuple(arrays)).module()
    assert not calls
    assert_close(exported(*arrays), array(scores.additive(*arrays)))


# TensorFlow's graphs.


@pytest.mark.slow
@pytest.mark.tensorflow
def test_compiled_in_loops_it_is_right(rng, calls):
    import tensorflow as tf

    arrays = inputs(rng)
    query, key, scale = map(tf.constant, arrays[:3])

    @tf.function(autograph=False)
    def loop():
        return tf.while_loop(
            lambda n, _: n < 3,
            lambda n, total: (n + 1, total + scores.additive(query, key, scale)),
            (0, tf.zeros([B, TQ, TV])),
        )[1]

    assert_close(loop(), 3 * reference(*arrays)[0], 3e-5)


# Shapes of query and key, how many keys, whether XLA compiles, and whether the formula is taken.
OPEN, QUERY, KEY = [None, None, UNITS], [None, TQ, UNITS], [None, TV, UNITS]
GRAPHS = [
    *((QUERY, [1, TV, UNITS], 1, None, True), (QUERY, KEY, 1, None, True)),
    *(pytest.param(OPEN, OPEN, B, jit, False, marks=pytest.mark.slow) for jit in (False, True)),
    *(pytest.param(QUERY, KEY, B, jit, True, marks=pytest.mark.slow) for jit in (False, True)),
]


@pytest.mark.tensorflow
@pytest.mark.parametrize(("queries", "keys", "count", "jit_compile", "takes"), GRAPHS)
def test_unknown_batches_are_compiled_and_unknown_lengths_are_not(
    rng, calls, queries, keys, count, jit_compile, takes
):
    query, key, scale, upstream = inputs(rng)
    specs = queries, keys, [UNITS], [None, *(None if queries is OPEN else n for n in (TQ, TV))]
    run = functools.partial(in_graph, jit_compile=jit_compile)
    holds([query, key[:count], scale, upstream], run=lambda f: run(f, *specs))
    assert count == 1 or bool(calls) == takes


def needs_xla(graph_def):
    """Whether a function of the graph is to be compiled by XLA."""
    return any("_XlaMustCompile" in f.attr for f in graph_def.library.function)


@pytest.mark.tensorflow
def test_xla_is_used_where_lengths_are_known_and_not_where_they_change(calls):
    layer = AdditiveAttention(UNITS)
    layer.build([B, TQ, UNITS], [B, TV, UNITS])

    def needs(batch, length=TQ, **options):
        run = in_graph(
            lambda *tensors: layer(*tensors, **options), [batch, length, UNITS], [batch, TV, UNITS]
        )
        return needs_xla(run.get_concrete_function().graph.as_graph_def())

    assert needs(B)
    assert not needs(None)
    assert needs(None, training=True)
    assert not needs(B, length=None, training=True)
    with fast_paths(False):
        assert not needs(B, training=True)
    with exporting():
        assert not needs(B, training=True)


@pytest.mark.tensorflow
def test_no_export_needs_xla(rng, calls, tmp_path):
    import tensorflow as tf
    from tensorflow.python.saved_model.loader_impl import parse_saved_model

    query, value = normal(rng, B, TQ, 5), normal(rng, B, TV, 3)
    layer = AdditiveAttention(UNITS)
    expected = array(layer(query, value))

    def model_of(*shapes):
        inputs = [keras.Input(batch_shape=shape) for shape in shapes]
        return keras.Model(inputs, layer(*inputs))

    model_of((None, TQ, 5), (None, TV, 3)).export(tmp_path / "any batch", verbose=False)
    with exporting():
        model_of(query.shape, value.shape).export(tmp_path / "exported", verbose=False)
    for name in ("any batch", "exported"):
        saved = parse_saved_model(str(tmp_path / name))
        assert not needs_xla(saved.meta_graphs[0].graph_def)
    loaded = tf.saved_model.load(tmp_path / "exported")
    assert_close(loaded.serve([tf.constant(query), tf.constant(value)]), expected)
