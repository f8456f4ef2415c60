"""The same checks for every layer."""

import json

import keras
import numpy as np
import pytest
from keras import ops

from tests.keras_attention import zoo
from tests.keras_attention.helpers import (
    array,
    assert_close,
    few,
    randomize,
    saved_and_loaded,
    weight_gradients,
)

every_layer = pytest.mark.parametrize("name", zoo.thinned(zoo.LAYERS))


def model_of(name, static=False):
    """A Functional model around the layer, with lengths that are not known in advance."""
    shapes = zoo.shapes(name)
    if not static:
        shapes = [shape if len(shape) == 1 else (None, *shape[1:]) for shape in shapes]
    layer, inputs = zoo.LAYERS[name](), [keras.Input(shape) for shape in shapes]
    return keras.Model(inputs, zoo.call(name, layer, inputs)), layer


# Of each layer its own kernels, not those of layers in it.
KERNELS = {"additive": 3, "general": 1, "local_p": 2, "pooling": 2, "rnn bahdanau feeding": 2}


@pytest.mark.tensorflow
@pytest.mark.parametrize(("name", "count"), KERNELS.items())
def test_kernels_are_regularized_and_constrained(rng, name, count):
    regularizer = keras.regularizers.L2(0.25)
    layer = zoo.LAYERS[name](kernel_regularizer=regularizer, kernel_constraint="non_neg")
    layer = type(layer).from_config(layer.get_config())
    layer(*zoo.arrays(name, rng))
    kernels = [w for w in layer.weights if w.constraint is not None]
    assert len(kernels) == count
    squares = sum(0.25 * (array(w.value) ** 2).sum() for w in kernels)
    assert_close(sum(array(x) for x in layer.losses), squares)
    for w in kernels:
        assert_close(w.constraint(w.value), np.maximum(array(w.value), 0))


@pytest.mark.tensorflow
@every_layer
def test_a_saved_model_loads_without_custom_objects_and_is_the_same(rng, tmp_path, name):
    model, _ = model_of(name)
    saved_and_loaded(model, zoo.arrays(name, rng), rng, tmp_path)
    layer = zoo.LAYERS[name](dtype="mixed_bfloat16", trainable=False, name="given")
    config = json.loads(json.dumps(layer.get_config()))
    again = type(layer).from_config(json.loads(json.dumps(config)))
    assert json.loads(json.dumps(again.get_config())) == config
    assert (again.name, again.dtype_policy.name) == ("given", "mixed_bfloat16")
    assert not again.trainable


@every_layer
def test_symbolic_outputs_have_the_shapes_and_types_of_the_arrays(rng, name):
    model, layer = model_of(name, static=True)
    eager_outputs = keras.tree.flatten(model(zoo.arrays(name, rng)))
    for symbolic, eager in zip(model.outputs, eager_outputs, strict=True):
        assert symbolic.shape == (None, *eager.shape[1:])
        assert symbolic.dtype == keras.backend.standardize_dtype(eager.dtype)
    free, _ = model_of(name)
    assert all(x.shape[0] is None for x in free.outputs)
    shapes = [(zoo.B, *shape) for shape in zoo.shapes(name)]
    if name != "cell":  # its state has no fixed form
        told = layer.compute_output_shape(*shapes)
        first = told if isinstance(told[0], int) else told[0]
        assert tuple(first) == (zoo.B, *model.outputs[0].shape[1:])


# PyTorch runs as it is, JAX compiles; TensorFlow does both. Graphs of TensorFlow are traced for
# batches of any size, below.
TRAINED = [(name, keras.backend.backend() == "jax") for name in zoo.thinned(zoo.LAYERS)]
if keras.backend.backend() == "tensorflow":
    TRAINED += [pytest.param(x, True, marks=pytest.mark.slow) for x in sorted(zoo.OF_EVERY_BACKEND)]


@pytest.mark.filterwarnings("ignore:The model does not have any trainable weights")
@pytest.mark.parametrize(("name", "compiled"), TRAINED)
def test_a_training_step_moves_the_weights(rng, name, compiled):
    model, _ = model_of(name, static=True)
    model = keras.Model(model.inputs, ops.sum(model.outputs[0], axis=-1))
    # The inputs' lengths are known, as they must be for XLA.
    model.compile("sgd", loss="mse", jit_compile=compiled, run_eagerly=not compiled)
    # Small weights: far apart, scores under sparsemax have no gradient.
    randomize(model, rng, deviation=0.1)
    before = {w.path: array(w.value) for w in model.trainable_weights}
    inputs = zoo.arrays(name, rng)
    target = rng.normal(size=(zoo.B, *model.outputs[0].shape[1:]))
    loss = model.train_on_batch(inputs, target)
    assert np.isfinite(loss)
    still = {w.name for w in model.trainable_weights if (array(w.value) == before[w.path]).all()}
    # The cell makes one step, from a state of zeros.
    idle = {"recurrent_kernel", "query_kernel", "coverage_kernel"} if name == "cell" else set()
    assert still == idle
    assert all(np.isfinite(array(w.value)).all() for w in model.weights if "seed" not in w.path)


BFLOAT16 = ("additive", "rnn heads", "rnn deep", "hoisted")


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        *((name, "mixed_float16") for name in zoo.thinned([*zoo.MECHANISMS, *zoo.POOLING])),
        *((name, "mixed_bfloat16") for name in few(BFLOAT16, "additive", "hoisted")),
    ],
)
def test_mixed_precision_is_close_and_free_of_nan(rng, set_policy, name, precision):
    inputs = zoo.arrays(name, rng)
    expected = [array(x) for x in zoo.call(name, zoo.built(name), inputs)]
    set_policy(precision)
    mixed = zoo.built(name)
    found = zoo.call(name, mixed, inputs)
    assert keras.backend.standardize_dtype(found[0].dtype) == precision.removeprefix("mixed_")
    tolerance = 0.02 if precision == "mixed_float16" else 0.15
    for x, e in zip(found, expected, strict=True):
        assert_close(ops.cast(x, "float32"), e, tolerance)
    if name in zoo.MECHANISMS:
        large = [100 * x for x in inputs]
        for x in zoo.call(name, mixed, large):
            assert np.isfinite(array(ops.cast(x, "float32"))).all()
    if mixed.trainable_weights:

        def total():
            return ops.sum(ops.cast(zoo.call(name, mixed, inputs)[0], "float32"))

        for slope in weight_gradients(mixed, total).values():
            assert np.isfinite(slope).all()


# To trace each layer's gradients takes seconds: the others take the same operations.
TRACED = [
    name if name in zoo.OF_EVERY_BACKEND else pytest.param(name, marks=pytest.mark.slow)
    for name in zoo.thinned(zoo.LAYERS)
]


@pytest.mark.parametrize("name", TRACED)
def test_batches_and_lengths_may_be_any_and_no_sentences_have_no_gradient(rng, name):
    """On TensorFlow in one graph that knows no sizes."""
    layer, masks = zoo.built(name), [key for key in zoo.masks(name) if key]
    batches = [1, zoo.B] if name == "hoisted" else [0, 1, zoo.B]

    def call(*arrays):
        masked = dict(zip(masks, arrays[-len(masks) :], strict=True))
        return zoo.call(name, layer, arrays[: -len(masks)], **masked)

    def run(*arrays):
        return call(*arrays), weight_gradients(layer, lambda: ops.sum(call(*arrays)[0])).values()

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        specs = [tf.TensorSpec([None] * len(x) + [x[-1]]) for x in zoo.shapes(name)]
        specs += [tf.TensorSpec([None, None], "bool")] * len(masks)

        @tf.function(input_signature=specs, autograph=False)
        def run(*arrays):
            with tf.GradientTape() as tape:
                outputs = call(*arrays)
                total = tf.reduce_sum(outputs[0])
            return outputs, tape.gradient(total, layer.trainable_weights)

    for batch in batches if keras.backend.backend() == "tensorflow" else batches[:1]:
        inputs = zoo.arrays(name, rng, batch)
        if batch == 1:  # and other lengths
            inputs = [x[:, :2] if x.ndim == 3 else x for x in inputs]
        outputs, slopes = run(*inputs, *(np.ones(x.shape[:2], bool) for x in inputs[-len(masks) :]))
        slopes = [array(x) for x in slopes if x is not None]
        assert_close(outputs, array(zoo.call(name, layer, inputs)))
        assert all(np.isfinite(x).all() and (batch or not x.any()) for x in slopes)
    full = zoo.call(name, layer, zoo.arrays(name, rng))
    for x, like in zip(zoo.call(name, layer, zoo.arrays(name, rng, 0)), full, strict=True):
        assert x.shape[0] == 0
        assert len(x.shape) == len(like.shape)


@pytest.mark.parametrize("name", zoo.thinned(zoo.MECHANISMS))
def test_steps_of_beams_that_share_a_memory_equal_all_at_once(rng, name):
    layer, beams = zoo.built(name), 3
    query, value = zoo.arrays(name, rng, zoo.B * beams)
    value, allowed = value[: zoo.B], np.array([[1, 1, 0, 1, 1], [0, 1, 1, 1, 0]], bool)
    repeated, mask = (np.repeat(x, beams, axis=0) for x in (value, allowed))
    context, weights = array(zoo.call(name, layer, [query, repeated], value_mask=mask))
    memory = layer.prepare(ops.convert_to_tensor(value), mask=ops.convert_to_tensor(allowed))
    state = layer.initial_state(memory)
    if not isinstance(state, tuple):
        state = ops.repeat(state, beams, axis=0)
    for t in range(zoo.TQ):
        q = ops.convert_to_tensor(query[:, t])
        found, weight, state = layer.step(q, memory, state)
        assert_close((found, weight), (context[:, t], weights[..., t, :]))
    single = zoo.call(name, layer, [query[:, 0], repeated], value_mask=mask)
    assert_close(single, [context[:, 0], weights[..., 0, :]])


@pytest.mark.parametrize("name", few([*zoo.MECHANISMS, *zoo.POOLING], "additive", "pooling"))
def test_dropout_obeys_the_seed_and_spares_the_returned_weights(rng, name):
    inputs, results = zoo.arrays(name, rng), []
    for seed in (5, 5, 6):
        layer = zoo.built(name, dropout=0.5, seed=seed)
        results.append([array(x) for x in zoo.call(name, layer, inputs, training=True)])
        assert len([v for v in layer.variables if "seed" in v.path]) == 1
    np.testing.assert_array_equal(results[0][0], results[1][0])
    assert (results[0][0] != results[2][0]).any()
    # Noise on the scores changes the weights themselves, and a hard choice is soft in training.
    noisy = name not in zoo.POOLING and "score" in layer.draw_noise((1, 1, 1))
    if not noisy and getattr(layer, "mode", "") != "hard":
        assert_close(zoo.call(name, layer, inputs)[1], results[0][1])
