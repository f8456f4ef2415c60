"""Runs functions on Keras's backend, between tensors of TensorFlow.

Tokenizers are TensorFlow's on every backend. A search on JAX or PyTorch gets its ids from them, and
gives its results back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from training.graphs import graph

Tensor = Any


def native(models: Sequence[keras.Model], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of TensorFlow's tensors that runs `function` on Keras's backend.

    On TensorFlow, this is `function`. JAX compiles it for each shape of its arguments.

    Args:
        models: the models that `function` uses; each call uses their current weights.
        function: a function of tensors that returns a tensor, or a named tuple of tensors.
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        return function
    run = _on_jax(models, function) if backend == "jax" else _on_torch(function)

    def call(*tensors: Any) -> Any:
        return _to_tensorflow(run(*(ops.convert_to_tensor(np.asarray(x)) for x in tensors)))

    return call


def graph_or_eager(*specs: tf.TensorSpec) -> Callable[[Callable[..., Any]], Any]:
    """Return `graph(*specs)`; on other backends a decorator that changes nothing."""
    if keras.backend.backend() == "tensorflow":
        return graph(*specs)
    return lambda function: function


def _on_jax(models: Sequence[keras.Model], function: Callable[..., Any]) -> Callable[..., Any]:
    import jax

    variables = [variable for model in models for variable in model.variables]

    @jax.jit
    def run(values: list[Tensor], *tensors: Tensor) -> Any:
        with keras.StatelessScope(list(zip(variables, values, strict=True))):
            return function(*tensors)

    return lambda *tensors: run([variable.value for variable in variables], *tensors)


def _on_torch(function: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    return torch.no_grad()(function)


def _to_tensorflow(outputs: Any) -> Any:
    if outputs is None:
        return None
    if isinstance(outputs, tuple):
        parts = [_to_tensorflow(part) for part in outputs]
        return type(outputs)(*parts) if hasattr(outputs, "_fields") else tuple(parts)
    return tf.constant(ops.convert_to_numpy(outputs))
