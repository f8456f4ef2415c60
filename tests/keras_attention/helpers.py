"""Small helpers of these tests."""

import keras
import numpy as np
from keras import ops

from tests.keras_attention import reference


def few(cases, *kept):
    """The cases on TensorFlow; on another backend those that meet an operation of its own.

    What every backend has in common is tested once. `test_agreement` and `fast/` hold each
    backend to what TensorFlow gives, all layers and all their gradients.
    """
    return [x for x in cases if keras.backend.backend() == "tensorflow" or x in kept]


def array(x):
    """A tensor, or a structure of tensors, as NumPy."""
    return keras.tree.map_structure(ops.convert_to_numpy, x)


def weights_of(layer):
    """The layer's weights by name, float64."""
    return {w.name: array(w.value).astype("float64") for w in layer.weights}


def score_of(layer, head=0):
    """The score of a head, as a function of the vectors that it reads of query and key, float64."""
    w = weights_of(layer)

    def part(x, axis=-1):
        return np.split(x, layer.num_heads, axis)[head]

    if not hasattr(layer, "score"):
        scale, bias = part(w["scale"]), part(w["bias"]) if "bias" in w else 0.0
        if layer.normalize:
            scale = w["gain"] * scale / np.sqrt((scale**2).sum())
        kernels = part(w["query_kernel"]), part(w["key_kernel"])
        return lambda q, k: reference.additive(q, k, *kernels, scale, bias)
    factor = w.get("scale", 1.0)
    if layer.score == "general":
        kernel = part(w["kernel"], 0)
        return lambda q, k: factor * reference.general(q, k, kernel)
    return lambda q, k: factor * getattr(reference, layer.score)(q, k)


def normal(rng, *shape):
    return rng.normal(size=shape).astype("float32")


def mask(rng, *shape):
    """A random mask with at least one True in each row."""
    result = rng.random(shape) < 0.6
    result[..., 0] |= ~result.any(-1)
    return result


def assert_close(actual, expected, tolerance=1e-5):
    """Compare a tensor with an array, or several with several."""
    if not isinstance(expected, (tuple, list)):
        actual, expected = [actual], [expected]
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(array(a), e, rtol=tolerance, atol=tolerance)


def randomize(layer, rng, deviation=0.5):
    """Give every weight random values: zeros and ones would hide mistakes."""
    for w in layer.weights:
        if "seed" not in w.path:
            w.assign(rng.normal(size=w.shape, scale=deviation).astype("float32"))


def saved_and_loaded(model, inputs, rng, path):
    """The model as loaded without custom objects, held to the saved one with random weights."""
    randomize(model, rng)
    model.save(path / "model.keras")
    again = keras.models.load_model(path / "model.keras")
    assert_close(keras.tree.flatten(again(inputs)), keras.tree.flatten(array(model(inputs))), 1e-6)
    return again


def weighted_sum(x, factors):
    """A scalar to take gradients of."""
    return ops.sum(ops.multiply(x, ops.convert_to_tensor(factors)))


def gradient(function, x):
    """The gradient of a scalar function at the array `x`, by the backend's autodiff."""
    return gradients(lambda arrays: function(*arrays), [x])[0]


def slopes(function, tensors, again=False):
    """The gradients of a scalar function of tensors; with `again` they have gradients, too."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(tensors)
            value = function(*tensors)
        return tape.gradient(value, tensors, unconnected_gradients="zero")
    if keras.backend.backend() == "jax":
        import jax

        return list(jax.grad(function, tuple(range(len(tensors))))(*tensors))
    import torch

    value = function(*tensors)
    if not value.requires_grad:
        return [torch.zeros_like(x) for x in tensors]
    found = torch.autograd.grad(value, tensors, create_graph=again, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(tensors, found, strict=True)]


def leaves(arrays):
    """Tensors to take gradients of."""
    tensors = [ops.convert_to_tensor(x) for x in arrays]
    if keras.backend.backend() != "torch":
        return tensors
    return [x.clone().requires_grad_() for x in tensors]


def gradients(function, arrays):
    """The gradients of a scalar function of a list of tensors, as arrays."""

    def found(*tensors):
        return slopes(lambda *xs: function(list(xs)), list(tensors))

    # Compiled as a whole by JAX: one program, where each operation were one.
    found = compiled(found) if keras.backend.backend() == "jax" else found
    return [array(x) for x in found(*leaves(arrays))]


def second_derivative(function):
    """The second derivative at 0 of a scalar function of a scalar tensor."""
    (found,) = slopes(lambda x: slopes(function, [x], again=True)[0], leaves([np.float32(0)]))
    return array(found)


def weight_gradients(layer, function):
    """The gradients of what `function()` returns with respect to the weights, by path."""
    variables = layer.trainable_weights

    def call(tensors):
        mapping = list(zip(variables, tensors, strict=True))
        with keras.StatelessScope(state_mapping=mapping):
            return function()

    found = gradients(call, [array(v.value) for v in variables])
    return {v.path: g for v, g in zip(variables, found, strict=True)}


def compiled(function):
    """The function, compiled by XLA; on PyTorch, which runs eagerly, as it is."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.function(function, jit_compile=True)
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)
    return function
