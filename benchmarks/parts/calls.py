"""Calls of a function of tensors on each backend: forward, and a training step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Case(NamedTuple):
    """A case to measure: a function of tensors, and the Keras variables that it uses."""

    function: Callable
    arrays: list[np.ndarray]
    weights: list


def attention_case(
    name: str, query: np.ndarray, value: np.ndarray, scale: np.ndarray, dtype: str = "float32"
) -> Case:
    """Build a case of additive scores, or of a layer with weights of its own.

    Args:
        name: "scores.additive", "plain formula", "AdditiveAttention", or "keras AdditiveAttention"
            and "keras Attention (dot)" behind the same two projections.
        query: `(B, Tq, units)`.
        value: `(B, Tv, units)`.
        scale: `(units,)`, of scores.
        dtype: "float32" or "bfloat16", in which a layer has its products.
    """
    import keras

    from keras_attention import AdditiveAttention, scores

    if name in ("scores.additive", "plain formula"):
        formula = scores.additive if name == "scores.additive" else plain_additive
        function = lambda *tensors: formula(*(keras.ops.cast(x, dtype) for x in tensors))  # noqa: E731
        return Case(function, [query, value, scale], [])
    units, policy = query.shape[-1], "float32" if dtype == "float32" else "mixed_bfloat16"
    if name == "AdditiveAttention":
        layer = AdditiveAttention(units, dtype=policy)
        layer.build(query.shape, value.shape)
        return Case(layer, [query, value], layer.trainable_weights)
    project = [keras.layers.Dense(units, use_bias=False, dtype=policy) for _ in range(2)]
    dot = name == "keras Attention (dot)"
    attend = (keras.layers.Attention if dot else keras.layers.AdditiveAttention)(dtype=policy)

    def call(query: Any, value: Any) -> Any:
        return attend([project[0](query), value, project[1](value)])

    call(query[:1], value[:1])
    weights = [w for layer in (*project, attend) for w in layer.trainable_weights]
    return Case(call, [query, value], weights)


# Of each backend, how functions are run; the first is what it is by default.
MODES = {
    "tensorflow": ("graph", "unknown", "xla", "eager"),
    "jax": ("jit", "eager"),
    "torch": ("eager", "compiled"),
}


def make_calls(case: Case, mode: str | None = None) -> dict[str, Callable[[], Any]]:
    """Return calls of the forward pass and of a training step that wait for their results."""
    import keras

    backend = keras.backend.backend()
    makers = {"tensorflow": on_tensorflow, "jax": on_jax, "torch": on_torch}
    return makers[backend](case, mode or MODES[backend][0])


def on_tensorflow(case: Case, mode: str) -> dict[str, Callable[[], Any]]:
    """Calls of `tf.function`s, or eager ones; `unknown` is a graph for any batch and lengths."""
    import tensorflow as tf

    weights = [w.value for w in case.weights]

    def step(*inputs: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            loss = tf.reduce_sum(tf.square(case.function(*inputs)))
        return tape.gradient(loss, [*inputs, *weights])

    inputs, forward = [tf.constant(x) for x in case.arrays], case.function
    if mode != "eager":
        free = [[None] * (x.ndim - 1) + [x.shape[-1]] for x in case.arrays]
        signature = [tf.TensorSpec(shape) for shape in free] if mode == "unknown" else None
        forward, step = (
            tf.function(f, input_signature=signature, jit_compile=mode == "xla")
            for f in (lambda *inputs: case.function(*inputs), step)
        )
    return {"forward": lambda: forward(*inputs).numpy(), "step": lambda: step(*inputs)[0].numpy()}


def on_jax(case: Case, mode: str) -> dict[str, Callable[[], Any]]:
    """Calls of `jax.jit`ted functions, or eager ones."""
    import jax
    import keras
    from jax import numpy as jnp

    def function(weights: list, inputs: list) -> Any:
        with keras.StatelessScope(state_mapping=list(zip(case.weights, weights, strict=True))):
            return case.function(*inputs)

    arguments = [w.value for w in case.weights], [jnp.asarray(x) for x in case.arrays]
    forward, step = function, jax.grad(lambda *a: jnp.sum(jnp.square(function(*a))), (0, 1))
    if mode == "jit":
        forward, step = jax.jit(forward), jax.jit(step)

    def waiting(call: Any) -> Callable[[], Any]:
        def wait() -> Any:
            return jax.block_until_ready(call(*arguments))

        if mode == "jit":
            wait.lower = lambda: call.lower(*arguments)  # from which the memory is planned
        return wait

    return {"forward": waiting(forward), "step": waiting(step)}


def on_torch(case: Case, mode: str) -> dict[str, Callable[[], Any]]:
    """Eager calls, or those of a compiled function, on the device that Keras has."""
    import keras
    import torch

    if mode == "compiled":
        torch.compiler.reset()  # what was compiled for other cases counts against a limit
    function = torch.compile(case.function) if mode == "compiled" else case.function

    inputs = [keras.ops.convert_to_tensor(x).requires_grad_(True) for x in case.arrays]
    leaves = [*inputs, *(w.value for w in case.weights)]

    def forward() -> Any:
        with torch.no_grad():
            return wait_for_torch(function(*inputs))

    def step() -> Any:
        return wait_for_torch(torch.autograd.grad(function(*inputs).square().sum(), leaves))

    return {"forward": forward, "step": step}


def wait_for_torch(result: Any) -> Any:
    """Return a result of PyTorch when it is there: a GPU computes while Python goes on."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return result


def plain_additive(query: Any, key: Any, scale: Any) -> Any:
    """The formula of additive scores as it stands."""
    from keras import ops

    return ops.matmul(ops.tanh(ops.expand_dims(query, 2) + ops.expand_dims(key, 1)), scale)
