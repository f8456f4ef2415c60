"""Loops over time, products and gathers for every backend, and the switch for fast paths.

This file uses Python and operations of Keras. `_on_tensorflow.py`, `_on_jax.py` and `_on_torch.py`
replace some of its functions in `keras_attention.backend`.

A fast path gives the same result as a plain formula. `fast_paths` switches between the two. The
switch changes neither functions that are already traced or compiled, nor the loops, products and
gathers of each backend.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, NamedTuple

from keras import ops, tree

from keras_attention.shapes import Tensor

Step = Callable[[Any, Any], tuple[Any, Any]]

# Options of `tf.function`. No code here needs autograph: there is no Python `if` or `for` on a
# tensor. Autograph would translate the source of each called function, even if the file has changed
# since its import.
PLAIN_GRAPH = {"autograph": False}

# Steps in one iteration of a loop on a GPU. With 2, a tenth more kernels are launched; with 8,
# compiling takes twice as long.
STEPS = 4


class Settings(NamedTuple):
    """The settings of this thread.

    Attributes:
        fast: whether fast paths may run.
        exporting: whether traced functions must run without XLA.
        training: whether a layer is called for training, so that gradients may be needed.
        products: dtype of the products in the loops of `fast.loop`; None for the cell's dtype.
        checkpoints: on a GPU, the object that stores the values that `checkpointed` makes in the
            step being traced; otherwise None.
    """

    fast: bool = True
    exporting: bool = False
    training: bool = False
    products: str | None = None
    checkpoints: Any = None


settings: ContextVar[Settings] = ContextVar("settings", default=Settings())  # noqa: B039


@contextlib.contextmanager
def with_settings(**values: Any) -> Iterator[None]:
    """Change some `Settings` within a `with` block."""
    token = settings.set(settings.get()._replace(**values))
    try:
        yield
    finally:
        settings.reset(token)


def fast_paths(enabled: bool) -> AbstractContextManager[None]:
    """Run the fast paths, or the plain formulas, within a `with` block, in this thread only.

    Args:
        enabled: whether the fast paths may run.
    """
    return with_settings(fast=bool(enabled))


def exporting() -> AbstractContextManager[None]:
    """Trace functions without XLA within a `with` block: TensorFlow Serving needs such functions.

    Save a TensorFlow model within this block if its batch size and lengths are all known.
    """
    return with_settings(exporting=True)


def scan(step: Step, state: Any, inputs: Any, output_dtypes: Any) -> tuple[Any, Any]:
    """Call `step` for each time step in turn.

    Args:
        step: `(inputs at t, state) -> (outputs at t, state)`. It keeps the state's structure,
            shapes and dtypes.
        state: structure of tensors, the state before the first step.
        inputs: structure of tensors `(T, ...)`.
        output_dtypes: dtype names, in the structure of the outputs of `step`.

    Returns:
        The outputs of all steps, stacked to `(T, ...)`, and the last state.
    """
    outputs: list[Any] = []
    # Unstacked, not indexed: an ONNX graph then rejects inputs of any other length than the traced.
    for row in zip(*(ops.unstack(x) for x in tree.flatten(inputs)), strict=True):
        output, state = step(tree.pack_sequence_as(inputs, row), state)
        outputs.append(output)
    return tree.map_structure(lambda *xs: ops.stack(xs), *outputs), state


def unfold(
    step: Step, state: Any, done: Any, max_length: Any, pause: Any = None, resume: Any = None
) -> tuple[Any, Any, Any]:
    """Call `step` until the state is done, at least once and at most `max_length` times.

    Args:
        step: `(t, state) -> (outputs at t, state)`. It keeps the state's structure, dtypes and
            ranks.
        state: structure of tensors, the state before the first step.
        done: `state ->` boolean tensor `()`. With XLA on a GPU, up to `STEPS - 1` more steps are
            taken after the state is done: they must not change the results.
        max_length: greatest number of steps; a Python integer on JAX and for XLA.
        pause: `state ->` boolean tensor `()`: whether to call `resume` after this step. Only
            without XLA.
        resume: `state -> state`; may change the size of first axes. Only without XLA.

    Returns:
        The outputs stacked to `(T, ...)`, the last state, and the number of steps taken. `T` is the
        number of steps taken. On JAX, and on TensorFlow under XLA, `T` is `max_length`, and the
        outputs after the last step taken are zeros.
    """
    outputs, t, longest = [], 0, int(max_length)  # reading a tensor waits for a GPU, once
    while t < longest and not (t and bool(done(state))):
        output, state = step(ops.convert_to_tensor(t, "int32"), state)
        if pause and resume and bool(pause(state)):
            state = resume(state)
        outputs.append(output)
        t += 1
    return tree.map_structure(lambda *xs: ops.stack(xs), *outputs), state, t


def project(x: Tensor, kernel: Tensor) -> Tensor:
    """Return the product of `x` `(..., m)` and a kernel `(m, n)` or `(m,)`."""
    return ops.matmul(x, kernel)


def average(weights: Tensor, value: Tensor) -> Tensor:
    """Return the product `(..., n, dv)` of weights `(..., n, S)` and values `(..., S, dv)`."""
    return ops.matmul(weights, value)


def gather(x: Tensor, index: Tensor) -> Tensor:
    """Return the rows of `x` `(n, ...)` at `index` `(k,)`: `(k, ...)`. No index is negative."""
    return ops.take(x, index, axis=0)


def gather_in_rows(x: Tensor, index: Tensor) -> Tensor:
    """Return `y` `(B, k, ...)` with `y[b, i] = x[b, index[b, i]]`.

    `x` is `(B, n, ...)`, `index` is `(B, k)`. No index is negative.
    """
    index = ops.reshape(index, (*ops.shape(index), *[1] * (len(x.shape) - 2)))
    return ops.take_along_axis(x, index, axis=1)


def take_in_rows(x: Tensor, index: Tensor) -> Tensor:
    """Return `y` `(B, T, S)` with `y[b, t, s] = x[b, t, index[b, s]]`.

    `x` is `(B, T, W)`, `index` is int32 `(B, S)`. No index is negative.
    """
    return ops.take_along_axis(x, ops.expand_dims(index, 1), axis=-1)


def add_in_rows(x: Tensor, index: Tensor, size: int | Tensor) -> Tensor:
    """Return `y` `(B, T, size)` with `y[b, t, w] = Σ_s x[b, t, s]` over `s` with `index[b, s] = w`.

    `x` is `(B, T, S)`, `index` is int32 `(B, S)`. Each backend has its own form, without the number
    `B · T · size` in int32: from 2³¹ on, it would be negative.
    """
    raise NotImplementedError


def traces_onnx() -> bool:
    """Return whether PyTorch is tracing an ONNX graph, in which loops are unrolled."""
    return False


def group_size(rows: Any, groups: Any) -> Any:
    """Return the number of rows in each of `groups` equal groups; with no group, `rows`."""
    if isinstance(groups, int):
        return rows // (groups or 1)
    return rows // (ops.maximum(groups, 1) if ops.is_tensor(groups) else groups)


def is_concrete(x: Tensor) -> bool:
    """Return whether the values of a tensor can be read: no function is being traced."""
    return True


def under_xla() -> bool:
    """Return whether XLA compiles the current computation."""
    return False


def additive(query: Tensor, key: Tensor, scale: Tensor, training: bool) -> Tensor | None:
    """Return `vᵀ tanh(q + k)` without a tensor `(B, Tq, Tv, units)`; None if the formula is better.

    The caller then computes the plain formula: for small sizes, a single query or key, unknown
    lengths, and in eager TensorFlow and JAX. Derivatives of any order equal the formula's.

    Args:
        query: float32 or wider, `(B, Tq, units)`.
        key: `(B, Tv, units)`.
        scale: `v`, `(units,)`.
        training: whether gradients may be needed. TensorFlow then compiles a function for an
            unknown batch size, too.

    Returns:
        The scores `(B, Tq, Tv)`, or None.
    """
    return None


def count_hidden(query: Tensor, key: Tensor, batch: int) -> int:
    """Return the size of the formula's tensor `(B, Tq, Tv, units)`, or 0 to use the formula.

    `batch` replaces an unknown `B`; with `batch=0` and an unknown `B` the result is 0.
    """
    rows, queries, units = query.shape
    sizes = (rows or batch, queries, key.shape[1], units)
    numbers = all(isinstance(size, int) for size in sizes)
    served = rows != key.shape[0] or not numbers or 1 in (queries, key.shape[1])
    return 0 if served else math.prod(sizes)


def in_gpu_loop() -> bool:
    """Return whether a step of `scan` or `unfold` is being traced, for XLA on a GPU."""
    return False


def wanted_device() -> str:
    """Return the environment variable `KERAS_ATTENTION_DEVICE`: `"cpu"`, `"gpu"` or `""`.

    The variable overrides the device that the backend finds. With `gpu`, a machine without a GPU
    traces and compiles the programs for a GPU.

    Raises:
        ValueError: if the variable has another value.
    """
    device = os.environ.get("KERAS_ATTENTION_DEVICE", "")
    if device not in ("", "cpu", "gpu"):
        raise ValueError(f"KERAS_ATTENTION_DEVICE expected cpu or gpu. Received: {device}")
    return device


def on_gpu() -> bool:
    """Return whether the backend computes on a GPU."""
    return wanted_device() == "gpu"


def for_gpu() -> bool:
    """Return whether XLA compiles the current computation for a GPU."""
    return False


def checkpointed(make: Callable[..., Tensor], *args: Any) -> Tensor:
    """Return `make(*args)`. In a step of `scan`, the gradient of `scan` may reuse the value."""
    return make(*args)
