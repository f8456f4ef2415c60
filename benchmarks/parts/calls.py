"""Calls of a function of tensors on each backend: forward, and a training step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Case(NamedTuple):
    """What is measured: a function of tensors, and the Keras variables that it uses."""

    function: Callable
    arrays: list[np.ndarray]
    weights: list


def make_calls(case: Case) -> dict[str, Callable[[], Any]]:
    """Return calls of the forward pass and of a training step that wait for their results."""
    import keras

    return {"tensorflow": on_tensorflow, "jax": on_jax, "torch": on_torch}[keras.backend.backend()](
        case
    )


def on_tensorflow(case: Case) -> dict[str, Callable[[], Any]]:
    """Calls of `tf.function`s."""
    import tensorflow as tf

    weights = [w.value for w in case.weights]

    def step(*inputs: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            loss = tf.reduce_sum(tf.square(case.function(*inputs)))
        return tape.gradient(loss, [*inputs, *weights])

    inputs = [tf.constant(x) for x in case.arrays]
    forward, step = tf.function(case.function), tf.function(step)
    return {"forward": lambda: forward(*inputs).numpy(), "step": lambda: step(*inputs)[0].numpy()}


def on_jax(case: Case) -> dict[str, Callable[[], Any]]:
    """Calls of `jax.jit`ted functions."""
    import jax
    import keras
    from jax import numpy as jnp

    def function(weights: list, inputs: list) -> Any:
        with keras.StatelessScope(state_mapping=list(zip(case.weights, weights, strict=True))):
            return case.function(*inputs)

    arguments = [w.value for w in case.weights], [jnp.asarray(x) for x in case.arrays]
    forward = jax.jit(function)
    step = jax.jit(jax.grad(lambda *a: jnp.sum(jnp.square(function(*a))), (0, 1)))
    return {
        "forward": lambda: jax.block_until_ready(forward(*arguments)),
        "step": lambda: jax.block_until_ready(step(*arguments)),
    }


def on_torch(case: Case) -> dict[str, Callable[[], Any]]:
    """Eager calls."""
    import torch

    inputs = [torch.tensor(x, requires_grad=True) for x in case.arrays]
    leaves = [*inputs, *(w.value for w in case.weights)]

    def forward() -> Any:
        with torch.no_grad():
            return case.function(*inputs)

    def step() -> Any:
        return torch.autograd.grad(case.function(*inputs).square().sum(), leaves)

    return {"forward": forward, "step": step}
