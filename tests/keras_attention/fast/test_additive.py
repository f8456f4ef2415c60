"""Additive scores without the large tensor, against a loop over the formula."""

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
    own = importlib.import_module(f"keras_attention.backend.on_{BACKEND}")
    monkeypatch.setattr(own, "LARGEST_FORMULA", 1)
    blocks = own
    if BACKEND == "tensorflow":
        from keras_attention.backend import tensorflow_additive as blocks

    monkeypatch.setattr(blocks, "BLOCK", 1000, raising=False)
    found, additive = [], backend.additive

    def watched(*args):
        result = additive(*args)
        if result is not None:
            found.append(args)
        return result

    monkeypatch.setattr(backend, "additive", watched)
    return found


def slow(*values):
    return pytest.param(values, marks=slow_on_tensorflow)


def reference(query, key, scale, upstream):
    """Scores and the gradients of their weighted sum, in a loop, float64."""
    query, key, scale, upstream = (np.asarray(x, "float64") for x in (query, key, scale, upstream))
    result = np.zeros(upstream.shape)
    slopes = [np.zeros_like(query), np.zeros_like(key), np.zeros_like(scale)]
    for b, i, j in np.ndindex(*upstream.shape):
        q, k = (b % len(query), i), (b % len(key), j)  # a single sentence is repeated
        hidden = np.tanh(query[q] + key[k])
        slope = upstream[b, i, j] * scale * (1 - hidden**2)
        result[b, i, j] = scale @ hidden
        slopes[0][q] += slope
        slopes[1][k] += slope
        slopes[2] += upstream[b, i, j] * hidden
    return result, slopes


def inputs(rng, batch=B, queries=TQ, keys=TV, units=UNITS, size=1.0):
    return [
        size * normal(rng, batch, queries, units),
        size * normal(rng, batch, keys, units),
        normal(rng, units),
        normal(rng, batch, queries, keys),
    ]


def in_graph(function):
    """The function as a graph; on PyTorch, which runs eagerly, as it is."""
    if BACKEND == "tensorflow":
        import tensorflow as tf

        return tf.function(function, autograph=False)
    return compiled(function)


def holds(arrays, tolerance=1e-5, run=in_graph):
    """Scores and gradients are the formula's."""
    expected, expected_slopes = reference(*arrays)
    upstream = ops.convert_to_tensor(arrays[3])

    def both(*tensors):
        def loss(*tensors):
            return ops.sum(scores.additive(*tensors) * upstream)

        return scores.additive(*tensors), slopes(loss, list(tensors))

    result, found = run(both)(*leaves(arrays[:3]))
    detached = [x.detach() if BACKEND == "torch" else x for x in (result, *found)]
    assert_close(detached, [expected, *expected_slopes], tolerance)


@pytest.mark.parametrize(
    "sizes",
    [
        (B, TQ, TV, UNITS),
        slow(7, 11, 13, 29),  # a block for each sentence
        slow(17, 5, 7, UNITS),  # blocks of sentences, the last ragged
        slow(2, 29, 23, 31),  # blocks of queries, the last ragged
    ],
)
def test_scores_and_gradients_follow_the_formula(rng, calls, sizes):
    holds(inputs(rng, *sizes))
    assert calls


def test_a_single_sentence_is_repeated_and_batches_that_differ_are_refused(rng):
    query, key, scale, upstream = inputs(rng)
    for arrays in ([query[:1], key], [query, key[:1]]):
        holds([*arrays, scale, upstream])
    with pytest.raises(ValueError, match=r"expected .* one batch size, or of 1. Received: query"):
        scores.additive(query, key[:2], scale)


def test_what_exponentials_do_not_hold_is_right_as_well(rng, calls):
    query, key, scale, upstream = inputs(rng)
    shift = 50.0 * np.sign(normal(rng, UNITS))
    for arrays in (
        [query + shift, key - shift, scale, upstream],  # opposite values that cancel
        [query - 60, key + 15, scale, upstream],  # an exponential of 0 in float32
        inputs(rng, size=1e4),
    ):
        holds(arrays, 2e-5)
    assert calls


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [("bfloat16", 2e-2), pytest.param("float16", 2e-3, marks=slow_on_tensorflow)],
)
def test_half_precision_is_computed_in_float32(rng, calls, dtype, tolerance):
    arrays = [ops.cast(ops.convert_to_tensor(x), dtype) for x in inputs(rng, units=509)[:3]]
    result = in_graph(scores.additive)(*arrays)
    assert keras.backend.standardize_dtype(result.dtype) == dtype
    query, key, scale = (array(ops.cast(x, "float32")).astype("float64") for x in arrays)
    expected = np.tanh(query[:, :, None] + key[:, None]) @ scale
    assert_close(ops.cast(result, "float32"), expected, tolerance)  # one rounding of the result
    assert calls


def test_second_derivatives_are_those_of_the_formula(rng, calls):
    """No way is computed twice: the formula's are by autodiff all through."""
    arrays = inputs(rng, 2, 5, 7, 11)

    def loss(*tensors):
        return ops.sum(scores.additive(*tensors) ** 2 * ops.convert_to_tensor(arrays[3]))

    def squares(*tensors):
        return sum(ops.sum(g**2) for g in slopes(loss, list(tensors), again=True))

    def second(*tensors):
        return slopes(squares, list(tensors))

    with fast_paths(False):
        expected = [array(x) for x in in_graph(second)(*leaves(arrays[:3]))]
    assert not calls
    result = in_graph(lambda *tensors: second(*tensors))(*leaves(arrays[:3]))
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


def needs_xla(graph_def):
    """Whether a function of the graph is to be compiled by XLA."""
    return any("_XlaMustCompile" in f.attr for f in graph_def.library.function)


def traced(function, *shapes):
    """The graph of a function of tensors of these shapes."""
    import tensorflow as tf

    specs = [tf.TensorSpec(shape) for shape in shapes]
    return tf.function(function).get_concrete_function(*specs).graph.as_graph_def()


@pytest.mark.slow
@pytest.mark.tensorflow
def test_compiled_as_a_whole_and_in_loops_it_is_right(rng, calls):
    import tensorflow as tf

    holds(inputs(rng), run=lambda f: tf.function(f, jit_compile=True, autograph=False))
    assert calls
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


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_unknown_batches_are_compiled_and_unknown_lengths_are_not(rng, calls, jit_compile):
    import tensorflow as tf

    def run(*shapes):
        specs = [tf.TensorSpec(x) for x in (*shapes, [UNITS], [None, None, None])]

        def both(query, key, scale, upstream):
            with tf.GradientTape() as tape, backend.within(training=True):
                tape.watch([query, key, scale])
                result = scores.additive(query, key, scale)
            return result, tape.gradient(result, [query, key, scale], upstream)

        function = tf.function(
            both, input_signature=specs, autograph=False, jit_compile=jit_compile
        )
        arrays = inputs(rng)
        expected, expected_slopes = reference(*arrays)
        result, slopes = function(*map(tf.constant, arrays))
        assert_close([result, *slopes], [expected, *expected_slopes])
        return len(calls)

    assert run([None, None, UNITS], [None, None, UNITS]) == 0
    assert run([None, TQ, UNITS], [None, TV, UNITS]) == 1


@pytest.mark.tensorflow
@pytest.mark.parametrize("known", [False, True])
def test_a_sentence_of_unknown_batches_is_repeated(rng, calls, known):
    import tensorflow as tf

    specs = tf.TensorSpec([None, TQ, UNITS]), tf.TensorSpec([1 if known else None, TV, UNITS])
    query, key, scale, upstream = inputs(rng)

    @tf.function(input_signature=specs)
    def run(query, key):
        with tf.GradientTape() as tape, backend.within(training=True):
            tape.watch([query, key])
            found = scores.additive(query, key, scale)
        return found, *tape.gradient(found, [query, key], upstream)

    expected, expected_slopes = reference(query, key[:1], scale, upstream)
    assert_close(run(query, key[:1]), (expected, *expected_slopes[:2]))


@pytest.mark.tensorflow
def test_xla_is_used_where_lengths_are_known_and_not_where_they_change(calls):
    layer = AdditiveAttention(UNITS)
    layer.build([B, TQ, UNITS], [B, TV, UNITS])

    def inference(*tensors):
        return layer(*tensors)

    def training(*tensors):
        return layer(*tensors, training=True)

    def plain(*tensors):
        with fast_paths(False):
            return layer(*tensors)

    def exported(*tensors):
        with exporting():
            return layer(*tensors, training=True)

    known = [B, TQ, UNITS], [B, TV, UNITS]
    batch = [None, TQ, UNITS], [None, TV, UNITS]
    length = [B, None, UNITS], [B, TV, UNITS]
    found = {
        function.__name__: [
            needs_xla(traced(function, *shapes)) for shapes in (known, batch, length)
        ]
        for function in (inference, training, plain, exported)
    }
    assert found == {
        "inference": [True, False, False],
        "training": [True, True, False],
        "plain": [False, False, False],
        "exported": [False, False, False],
    }


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
