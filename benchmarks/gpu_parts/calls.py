"""Timed calls of functions of tensors, on the backend that Keras has."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

Call = Callable[[], Any]


def backend() -> str:
    """Name the backend."""
    return keras.backend.backend()


def on_gpu() -> bool:
    """Tell whether the backend computes on a GPU."""
    if backend() == "jax":
        import jax

        return jax.default_backend() == "gpu"
    if backend() == "torch":
        import torch

        return torch.cuda.is_available()
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


def forward(function: Callable, arrays: Sequence[np.ndarray], weights: Sequence[Any] = ()) -> Call:
    """Return a call of the function, compiled where users would compile it, that waits.

    Args:
        function: of tensors, to a tensor.
        arrays: its arguments.
        weights: Keras variables that it reads.
    """
    if backend() == "jax":
        import jax

        leaves, inputs = [w.value for w in weights], [jax.numpy.asarray(x) for x in arrays]
        compiled = jax.jit(_stateless(function, weights)).lower(leaves, inputs).compile()
        call = lambda: jax.block_until_ready(compiled(leaves, inputs))  # noqa: E731
        call.memory = _planned(compiled)
        return call
    if backend() == "torch":
        import torch

        inputs = [keras.ops.convert_to_tensor(x) for x in arrays]

        def call() -> Any:
            with torch.no_grad():
                result = function(*inputs)
            _wait_for_torch()
            return result

        return call
    import tensorflow as tf

    inputs, compiled = [tf.constant(x) for x in arrays], tf.function(function)
    return lambda: compiled(*inputs).numpy()


def training_step(
    function: Callable, arrays: Sequence[np.ndarray], weights: Sequence[Any] = ()
) -> Call:
    """Return a call of forward and backward pass, of the sum of squares: likewise."""
    if backend() == "jax":
        import jax

        stateless = _stateless(function, weights)
        slope = jax.grad(lambda *a: jax.numpy.sum(jax.numpy.square(stateless(*a))), (0, 1))
        leaves, inputs = [w.value for w in weights], [jax.numpy.asarray(x) for x in arrays]
        compiled = jax.jit(slope).lower(leaves, inputs).compile()
        call = lambda: jax.block_until_ready(compiled(leaves, inputs))  # noqa: E731
        call.memory = _planned(compiled)
        return call
    if backend() == "torch":
        import torch

        inputs = [keras.ops.convert_to_tensor(x).requires_grad_(True) for x in arrays]
        leaves = [*inputs, *(w.value for w in weights)]

        def call() -> Any:
            slopes = torch.autograd.grad(function(*inputs).square().sum(), leaves)
            _wait_for_torch()
            return slopes

        return call
    import tensorflow as tf

    inputs, leaves = [tf.constant(x) for x in arrays], [w.value for w in weights]

    @tf.function
    def compiled(*inputs: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            loss = tf.reduce_sum(tf.square(function(*inputs)))
        return tape.gradient(loss, [*inputs, *leaves])

    return lambda: compiled(*inputs)[0].numpy()


def fused(function: Callable, array: np.ndarray) -> Call:
    """Return a call of an elementwise function as one kernel: XLA's or `torch.compile`'s."""
    if backend() == "torch":
        import torch

        x, compiled = keras.ops.convert_to_tensor(array), torch.compile(function)

        def call() -> Any:
            with torch.no_grad():
                result = compiled(x)
            _wait_for_torch()
            return result

        return call
    if backend() == "jax":
        return forward(function, [array])
    import tensorflow as tf

    x, compiled = tf.constant(array), tf.function(function, jit_compile=True)
    ready = tf.function(lambda y: y[:1])  # what is fetched is short

    return lambda: ready(compiled(x)).numpy()


def milliseconds(call: Call, repeat: int) -> float:
    """Return the median duration of a call, after two that are not counted."""
    taken = []
    for count in range(repeat + 2):
        started = time.perf_counter()
        call()
        if count > 1:
            taken.append(time.perf_counter() - started)
    return statistics.median(taken) * 1e3


def peak_megabytes(call: Call) -> float | None:
    """Return the memory that a call needs on the GPU, its results included.

    On JAX it is what the compiler planned, on a CPU too; elsewhere what the allocator counted
    above what was in use before; None on a CPU.
    """
    if backend() == "jax":
        return call.memory / 1e6
    if not on_gpu():
        return None
    if backend() == "torch":
        import torch

        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        return (torch.cuda.max_memory_allocated() - before) / 1e6
    import tensorflow as tf

    tf.config.experimental.reset_memory_stats("GPU:0")
    before = tf.config.experimental.get_memory_info("GPU:0")["current"]
    call()
    return (tf.config.experimental.get_memory_info("GPU:0")["peak"] - before) / 1e6


def _planned(compiled: Any) -> float:
    memory = compiled.memory_analysis()
    return memory.temp_size_in_bytes + memory.output_size_in_bytes


def _stateless(function: Callable, weights: Sequence[Any]) -> Callable:
    def stateless(leaves: Any, inputs: Any) -> Any:
        with keras.StatelessScope(state_mapping=list(zip(weights, leaves, strict=True))):
            return function(*inputs)

    return stateless


def _wait_for_torch() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
