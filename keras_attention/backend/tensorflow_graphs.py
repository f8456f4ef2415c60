"""TensorFlow's graphs: how the library makes them, and what is being traced."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import tensorflow as tf

from keras_attention.backend import generic

# TensorFlow has no public name for this: what a function with `jit_compile=True` is traced in, its
# graph does not say. A TensorFlow without it would run, but compile nothing of this library.
try:
    from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext
except ImportError:
    GraphOrParentsInXlaContext = None

# Whether a step of `scan` or `unfold` is being traced, and for which device.
_step_device: ContextVar[str] = ContextVar("step_device", default="")


def graph(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that makes a TensorFlow function.

    Autograph is off: no function of the library has a Python `if` or `for` on a tensor, and it
    translates the source of each function that is called, line by line, also where the file has
    changed since it was imported.

    Args:
        **options: of `tf.function`.
    """
    return functools.partial(tf.function, autograph=False, **options)


@contextlib.contextmanager
def tracing_a_step(gpu: bool) -> Iterator[None]:
    """Within this, a step of `scan` or `unfold` is being traced, for XLA on a GPU or not."""
    token = _step_device.set("gpu" if gpu else "cpu")
    try:
        yield
    finally:
        _step_device.reset(token)


def under_xla() -> bool:
    """Whether XLA compiles what is being computed, since a function has `jit_compile=True`."""
    is_in_xla = GraphOrParentsInXlaContext
    return is_in_xla is not None and bool(is_in_xla(tf.compat.v1.get_default_graph()))


def in_loop() -> bool:
    """Whether a step of `scan` or `unfold` is being traced."""
    return _step_device.get() != ""


def in_gpu_loop() -> bool:
    """Whether a step of `scan` or `unfold` is being traced that XLA compiles for a GPU."""
    return _step_device.get() == "gpu"


def on_gpu() -> bool:
    """Whether TensorFlow sees a GPU, or `generic.wanted_device` says so."""
    device = generic.wanted_device()
    return device == "gpu" if device else bool(tf.config.list_physical_devices("GPU"))


def for_gpu() -> bool:
    """Whether XLA compiles what is being computed for a GPU."""
    return under_xla() and on_gpu()
