"""Additive scores without the big tensor: every way to compute them against the formula."""

import numpy as np
import pytest
from keras import ops

from keras_attention import AdditiveAttention, backend, exporting, fast_paths, scores
from keras_attention.fast import switch
from tests.keras_attention.helpers import array, assert_close, gradients, normal, weighted_sum

B, TQ, TV, UNITS = 3, 11, 7, 13
DTYPES = {"float16": 2e-3, "bfloat16": 2e-2}


@pytest.fixture
def exponential(monkeypatch):
    """The module, with blocks so small that every size here has several and the last is ragged."""
    from keras_attention.fast import exponential

    monkeypatch.setattr(switch, "BLOCK", 1000)
    monkeypatch.setattr(switch, "EAGER", 1000)
    monkeypatch.setattr(backend, "writes_in_place", lambda *tensors: False)  # see test_in_place
    return exponential


def reference(query, key, scale, upstream):
    """Scores and the gradients of their weighted sum, in a loop, float64."""
    query, key, scale, upstream = (np.asarray(x, "float64") for x in (query, key, scale, upstream))
    found = np.zeros(upstream.shape)
    result = [np.zeros_like(query), np.zeros_like(key), np.zeros_like(scale)]
    for b, i, j in np.ndindex(*upstream.shape):
        hidden = np.tanh(query[b, i] + key[b, j])
        slope = upstream[b, i, j] * scale * (1 - hidden**2)
        found[b, i, j] = scale @ hidden
        result[0][b, i] += slope
        result[1][b, j] += slope
        result[2] += upstream[b, i, j] * hidden
    return found, result


def inputs(rng, batch=B, queries=TQ, keys=TV, units=UNITS, size=1.0):
    return [
        size * normal(rng, batch, queries, units),
        size * normal(rng, batch, keys, units),
        normal(rng, units),
        normal(rng, batch, queries, keys),
    ]


def scores_and_gradients(query, key, scale, upstream):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch([query, key, scale])
        found = scores.additive(query, key, scale)
    return found, tape.gradient(found, [query, key, scale], upstream)


@pytest.mark.parametrize("fused", [True, False])  # as on a GPU, and as on a CPU, for JAX
def test_scores_and_gradients_follow_the_formula(rng, exponential, monkeypatch, fused):
    monkeypatch.setattr(exponential.backend, "fuses_sums", lambda: fused)
    shift = 25.0 * np.sign(normal(rng, UNITS))
    query, key, scale, upstream = inputs(rng)
    for arrays in (
        [query, key, scale, upstream],
        [query + shift, key - shift, scale, upstream],  # past what the exponentials hold
        [query - 60, key + 15, scale, upstream],  # an exponential of 0 in float32
        [query + 15, key - 1e4, scale, upstream],
        inputs(rng, size=1e4),
        inputs(rng, 17, 5, 7, UNITS),
        inputs(rng, 1, 47, 2, 31),
        inputs(rng, 2, 2, 41, 67),
        inputs(rng, B, TQ, 1, 101),
    ):
        expected, expected_gradients = reference(*arrays)
        assert_close(scores.additive(*map(ops.convert_to_tensor, arrays[:3])), expected, 2e-5)
        found = gradients(
            lambda tensors, u=arrays[3]: weighted_sum(scores.additive(*tensors), u), arrays[:3]
        )
        assert_close(found, expected_gradients, 2e-5)


def test_what_is_large_is_never_whole(rng, exponential, monkeypatch):
    largest, tanh, exp = [], ops.tanh, ops.exp

    def watched(function):
        def call(x):
            largest.append(int(np.prod(x.shape)))
            return function(x)

        return call

    monkeypatch.setattr(ops, "tanh", watched(tanh))
    monkeypatch.setattr(ops, "exp", watched(exp))
    arrays = inputs(rng, 2, 29, 23, 31)
    gradients(lambda tensors: weighted_sum(scores.additive(*tensors), arrays[3]), arrays[:3])
    assert 0 < max(largest) <= 2 * 29 * 31 < 2 * 29 * 23 * 31 / 20


def ways():
    """Functions to TensorFlow functions, by what makes the scores then."""
    import tensorflow as tf

    return {
        "eager": lambda f: f,
        "compiled by itself": tf.function,
        "compiled as a whole": lambda f: tf.function(f, jit_compile=True),
        "unknown lengths": lambda f: _unknown(f, False),
        "unknown lengths, compiled": lambda f: _unknown(f, True),
    }


def _unknown(function, jit_compile):
    import tensorflow as tf

    vectors = tf.TensorSpec([None, None, UNITS])
    signature = [vectors, vectors, tf.TensorSpec([UNITS]), tf.TensorSpec([None, None, None])]
    return tf.function(function, input_signature=signature, jit_compile=jit_compile)


def holds(function, arrays, tolerance=1e-5):
    import tensorflow as tf

    expected, expected_gradients = reference(*arrays)
    found, found_gradients = function(*map(tf.constant, arrays))
    assert_close(found, expected, tolerance)
    assert_close(found_gradients, expected_gradients, tolerance)


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "way",
    [
        "eager",
        "compiled by itself",
        "compiled as a whole",
        "unknown lengths",
        "unknown lengths, compiled",
    ],
)
def test_every_way_gives_the_formula_and_its_gradients(rng, exponential, way):
    function = ways()[way](scores_and_gradients)
    holds(function, inputs(rng))
    holds(function, inputs(rng, batch=2, queries=5, keys=17))
    # Past what the exponentials hold: opposite values that cancel, and huge ones.
    query, key, scale, upstream = inputs(rng)
    shift = 25.0 * np.sign(normal(rng, UNITS))
    holds(function, [query + shift, key - shift, scale, upstream], 2e-5)
    holds(function, inputs(rng, size=1e4))


@pytest.mark.tensorflow
def test_sizes_that_blocks_and_slices_do_not_divide(rng, exponential):
    import tensorflow as tf

    function = tf.function(scores_and_gradients)
    for sizes in [
        (1, 47, 2, 31),
        (2, 2, 41, 67),
        (B, 1, TV, 101),
        (B, TQ, 1, 101),
        (7, 11, 13, 29),  # a block for each of the batch
        (17, 5, 7, UNITS),  # blocks of the batch, the last ragged
        (2, 29, 23, 31),  # blocks of rows, the last ragged
    ]:
        holds(function, inputs(rng, *sizes))


@pytest.mark.tensorflow
@pytest.mark.parametrize("dtype", DTYPES)
def test_half_precision_is_computed_in_float32(rng, exponential, dtype):
    import tensorflow as tf

    arrays = [tf.cast(x, dtype) for x in inputs(rng, units=509)]
    expected, expected_gradients = reference(*[array(tf.cast(x, "float32")) for x in arrays])
    for way in ("eager", "compiled by itself"):
        found, found_gradients = ways()[way](scores_and_gradients)(*arrays)
        for x, e in zip([found, *found_gradients], [expected, *expected_gradients], strict=True):
            assert x.dtype == dtype
            # One rounding of the result, whatever the number of terms.
            assert_close(tf.cast(x, "float32"), e, DTYPES[dtype])


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "way", ["eager", "compiled by itself", "compiled as a whole", "unknown lengths"]
)
def test_gradients_of_gradients_are_refused_in_one_line_or_right(rng, exponential, way):
    import tensorflow as tf

    arrays = [x.astype("float64") for x in inputs(rng, 2, 7, 11, 13)]
    direction = [rng.normal(size=x.shape) for x in arrays[:3]]

    def penalty(query, key, scale):
        with tf.GradientTape() as tape:
            tape.watch([query, key, scale])
            total = tf.reduce_sum(arrays[3] * scores.additive(query, key, scale) ** 2)
        return sum(tf.reduce_sum(g**2) for g in tape.gradient(total, [query, key, scale]))

    def slope(query, key, scale):
        with tf.GradientTape() as tape:
            tape.watch([query, key, scale])
            found = penalty(query, key, scale)
        return tape.gradient(found, [query, key, scale])

    def moved(by):
        return [tf.constant(x + by * d) for x, d in zip(arrays[:3], direction, strict=True)]

    vectors = tf.TensorSpec([None, None, 13], "float64")
    signature = [vectors, vectors, tf.TensorSpec([13], "float64")]
    function = {
        "eager": slope,
        "compiled by itself": tf.function(slope),
        "compiled as a whole": tf.function(slope, jit_compile=True),
        "unknown lengths": tf.function(slope, input_signature=signature),
    }[way]
    if "compiled" in way:
        with pytest.raises(NotImplementedError, match=r"fast_paths\(False\)"):
            function(*moved(0))
        return
    found = sum(
        float(tf.reduce_sum(g * d)) for g, d in zip(function(*moved(0)), direction, strict=False)
    )
    with fast_paths(False):
        low, high = penalty(*moved(-1e-5)), penalty(*moved(1e-5))
    np.testing.assert_allclose(found, float(high - low) / 2e-5, rtol=1e-6)


@pytest.mark.tensorflow
def test_forward_mode_is_that_of_differences(rng, exponential):
    import tensorflow as tf

    *arrays, _ = (x.astype("float64") for x in inputs(rng, 2, 7, 11, 13))
    direction = [rng.normal(size=x.shape) for x in arrays]
    tensors = [tf.constant(x) for x in arrays]
    with tf.autodiff.ForwardAccumulator(tensors, list(map(tf.constant, direction))) as accumulator:
        found = scores.additive(*tensors)
    with fast_paths(False):
        low, high = (
            scores.additive(*(x + by * d for x, d in zip(tensors, direction, strict=True)))
            for by in (-1e-6, 1e-6)
        )
    assert_close(accumulator.jvp(found), array(high - low) / 2e-6, 1e-6)


def needs_xla(graph_def):
    """Whether a function of the graph is to be compiled by XLA."""
    return any("_XlaMustCompile" in f.attr for f in graph_def.library.function)


def traced(function, *shapes):
    """The graph of a function of tensors of these shapes."""
    import tensorflow as tf

    specs = [tf.TensorSpec(shape) for shape in shapes]
    return tf.function(function).get_concrete_function(*specs).graph.as_graph_def()


@pytest.mark.tensorflow
def test_xla_is_used_where_lengths_are_known_and_not_where_they_change(exponential):
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
def test_no_export_needs_xla(rng, exponential, tmp_path):
    import keras
    import tensorflow as tf
    from tensorflow.python.saved_model.loader_impl import parse_saved_model

    query, value = normal(rng, B, TQ, 5), normal(rng, B, TV, 3)
    layer = AdditiveAttention(UNITS)
    expected = array(layer(query, value))

    def model_of(*shapes):
        inputs = [keras.Input(batch_shape=shape) for shape in shapes]
        return keras.Model(inputs, layer(*inputs))

    model_of((None, TQ, 5), (None, TV, 3)).export(tmp_path / "any batch", verbose=False)
    module = tf.Module()
    module.weights = [w.value for w in layer.weights]
    module.serve = tf.function(lambda q, v: {"context": layer(q, v)})
    specs = tf.TensorSpec(query.shape, name="q"), tf.TensorSpec(value.shape, name="v")
    with exporting():
        model_of(query.shape, value.shape).export(tmp_path / "exported", verbose=False)
        tf.saved_model.save(module, tmp_path / "saved", module.serve.get_concrete_function(*specs))
    for name in ("any batch", "exported", "saved"):
        saved = parse_saved_model(str(tmp_path / name))
        assert not needs_xla(saved.meta_graphs[0].graph_def)
    loaded = tf.saved_model.load(tmp_path / "saved")
    found = loaded.signatures["serving_default"](q=tf.constant(query), v=tf.constant(value))
    assert_close(found["context"], expected)


@pytest.mark.tensorflow
def test_the_scale_may_be_a_variable(rng, exponential):
    import tensorflow as tf

    *arrays, upstream = inputs(rng)
    query, key, scale = map(tf.Variable, arrays)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            found = scores.additive(query, key, scale)
        return found, tape.gradient(found, [query, key, scale], upstream)

    expected, expected_gradients = reference(*arrays, upstream)
    found, found_gradients = step()
    assert_close(found, expected)
    assert_close(found_gradients, expected_gradients)


@pytest.mark.tensorflow
def test_a_step_of_a_loop_is_the_plain_formula(rng, exponential):
    import tensorflow as tf

    query, key, scale, upstream = inputs(rng)
    counts = []

    def step(_, total):
        found = scores.additive(query, key, scale)
        operations = tf.compat.v1.get_default_graph().get_operations()
        counts.append([x.type for x in operations].count("Tanh"))
        return (), total + found

    @tf.function
    def loop():
        return backend.scan(step, tf.zeros([B, TQ, TV]), tf.zeros(3), ())[1]

    assert_close(loop(), 3 * reference(query, key, scale, upstream)[0], 3e-5)
    assert counts == [1]


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_step_of_a_loop_of_somebody_else_is_right(rng, exponential, jit_compile):
    import tensorflow as tf

    *arrays, upstream = inputs(rng)

    @tf.function(jit_compile=jit_compile)
    def step(query, key, scale):
        with tf.GradientTape() as tape:
            tape.watch([query, key, scale])
            found = tf.while_loop(
                lambda n, _: n < 3,
                lambda n, total: (n + 1, total + scores.additive(query, key, scale)),
                (0, tf.zeros([B, TQ, TV])),
                maximum_iterations=3,
            )[1]
        return found, tape.gradient(found, [query, key, scale], upstream)

    expected, expected_gradients = reference(*arrays, 3 * upstream)
    found, found_gradients = step(*map(tf.constant, arrays))
    assert_close(found, 3 * expected, 3e-5)
    assert_close(found_gradients, expected_gradients, 3e-5)
