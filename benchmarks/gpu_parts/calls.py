"""Timed calls of functions of tensors, on the backend that Keras has."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from parts.calls import Case, make_calls, wait_for_torch

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


def fused(function: Callable, array: np.ndarray) -> Call:
    """Return a call of an elementwise function as one kernel: XLA's or `torch.compile`'s."""
    if backend() == "torch":
        import torch

        x, compiled = keras.ops.convert_to_tensor(array), torch.compile(function)

        def call() -> Any:
            with torch.no_grad():
                return wait_for_torch(compiled(x))

        return call
    if backend() == "jax":
        return make_calls(Case(function, [array], []))["forward"]
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
        planned = call.lower().compile().memory_analysis()
        return (planned.temp_size_in_bytes + planned.output_size_in_bytes) / 1e6
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
