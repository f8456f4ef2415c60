"""Loops over time, and products and gathers in a loop, for every backend; the fast paths' switch.

They are written in Python and operations of Keras. `on_tensorflow.py`, `on_jax.py` and
`on_torch.py` replace some of them in `keras_attention.backend`.

A fast path gives the result of a plain formula. Functions that were traced or compiled before a
switch stay as they are. The switch leaves each backend's own loops, products and gathers alone.
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

Tensor = Any
Step = Callable[[Any, Any], tuple[Any, Any]]

# Of `tf.function`. No function of the library has a Python `if` or `for` on a tensor, and autograph
# translates the source of each that is called, also where its file has changed since the import.
PLAIN_GRAPH = {"autograph": False}

VARIABLE = "KERAS_ATTENTION_FAST_PATHS"

_of_process = os.environ.get(VARIABLE, "1")
if _of_process not in ("0", "1"):
    raise ValueError(f"{VARIABLE} expected 0 or 1. Received: {_of_process!r}")


class Settings(NamedTuple):
    """What holds for this thread.

    Attributes:
        fast: whether fast paths may run.
        exporting: whether functions must run where XLA does not.
        training: whether a layer is called for training, so that gradients may follow.
        products: dtype of the products in the loops of `fast.loop`, or None for that of the cell.
    """

    fast: bool = _of_process == "1"
    exporting: bool = False
    training: bool = False
    products: str | None = None


settings: ContextVar[Settings] = ContextVar("settings", default=Settings())  # noqa: B039


@contextlib.contextmanager
def within(**values: Any) -> Iterator[None]:
    """Within this, some `Settings` have other values."""
    token = settings.set(settings.get()._replace(**values))
    try:
        yield
    finally:
        settings.reset(token)


def fast_paths(enabled: bool) -> AbstractContextManager[None]:
    """Within this, run the fast paths, or the plain formulas that they stand for.

    It holds for this thread. For a whole process set the environment variable
    `KERAS_ATTENTION_FAST_PATHS` to 0.

    Args:
        enabled: whether the fast paths may run.
    """
    return within(fast=bool(enabled))


def exporting() -> AbstractContextManager[None]:
    """Within this, trace functions so that they run where XLA does not, as in TensorFlow Serving.

    Save a TensorFlow model whose batch size and lengths are all known under it.
    """
    return within(exporting=True)


def scan(step: Step, state: Any, inputs: Any, output_dtypes: Any) -> tuple[Any, Any]:
    """Call `step` for each time step in turn.

    Args:
        step: `(inputs at t, state) -> (outputs at t, state)`. Shapes and dtypes of the state stay.
        state: structure of tensors.
        inputs: structure of tensors with time as the first axis; every leaf is `(T, ...)`.
        output_dtypes: structure of dtype names, alike to the outputs of `step`.

    Returns:
        The outputs of all steps, stacked to `(T, ...)`, and the last state.
    """
    outputs: list[Any] = []
    # Unstacked, not indexed: an ONNX graph then refuses other lengths than the one that was traced.
    for row in zip(*(ops.unstack(x) for x in tree.flatten(inputs)), strict=True):
        output, state = step(tree.pack_sequence_as(inputs, row), state)
        outputs.append(output)
    return tree.map_structure(lambda *xs: ops.stack(xs), *outputs), state


def unfold(
    step: Step, state: Any, done: Any, max_length: Any, pause: Any = None, resume: Any = None
) -> tuple[Any, Any, Any]:
    """Call `step` until the state is done or `max_length` steps are taken.

    Args:
        step: `(t, state) -> (outputs at t, state)`. Dtypes and ranks of the state stay.
        state: structure of tensors.
        done: `state -> ()` boolean tensor. A step of a state that is done changes nothing that
            counts: where XLA compiles for a GPU some are taken.
        max_length: greatest number of steps; a Python integer on JAX and for XLA.
        pause: `state -> ()` boolean tensor: whether the state goes through `resume` now.
        resume: `state -> state`, which may change the size of first axes. Both only where
            XLA does not compile.

    Returns:
        The outputs stacked to `(T, ...)`, the last state, and the number of steps taken. `T` is the
        number of steps taken; on JAX, and on TensorFlow where XLA compiles, it is `max_length`
        with zeros after the last step taken.
    """
    outputs, t, longest = [], 0, int(max_length)  # of a GPU, which is waited for once
    while t < longest and not (t and bool(done(state))):
        output, state = step(ops.convert_to_tensor(t, "int32"), state)
        if pause and resume and bool(pause(state)):
            state = resume(state)
        outputs.append(output)
        t += 1
    return tree.map_structure(lambda *xs: ops.stack(xs), *outputs), state, t


def project(x: Tensor, kernel: Tensor) -> Tensor:
    """Return the product of `(..., m)` and a kernel `(m, n)` or `(m,)`."""
    return ops.matmul(x, kernel)


def average(weights: Tensor, value: Tensor) -> Tensor:
    """Return the product of weights `(..., n, S)` and values `(..., S, dv)`."""
    return ops.matmul(weights, value)


def gather(x: Tensor, index: Tensor) -> Tensor:
    """Return the rows `index`, none of them negative, of `x` `(n, ...)`."""
    return ops.take(x, index, axis=0)


def gather_in_rows(x: Tensor, index: Tensor) -> Tensor:
    """Return `(B, k, ...)`, the elements `index` `(B, k)`, none negative, of `x` `(B, n, ...)`."""
    index = ops.reshape(index, (*ops.shape(index), *[1] * (len(x.shape) - 2)))
    return ops.take_along_axis(x, index, axis=1)


def add_in_rows(x: Tensor, index: Tensor, size: int | Tensor) -> Tensor:
    """Return `(B, T, size)`, the sums of `x` `(B, T, S)` at the places `index`, int32 `(B, S)`."""
    batch, time, _ = ops.shape(x)
    row = ops.reshape(ops.arange(batch * time, dtype="int32"), (batch, time, 1)) * size
    flat = row + ops.expand_dims(index, 1)
    total = ops.segment_sum(
        ops.reshape(x, (-1,)), ops.reshape(flat, (-1,)), num_segments=batch * time * size
    )
    return ops.reshape(total, (batch, time, size))


def traces_onnx() -> bool:
    """Whether a graph of ONNX is being traced, on PyTorch: loops are unrolled there."""
    return False


def share(rows: Any, batch: Any) -> Any:
    """Return how many of `rows` rows share each of `batch` rows, where `batch` may be 0."""
    if isinstance(batch, int):
        return rows // (batch or 1)
    return rows // (ops.maximum(batch, 1) if ops.is_tensor(batch) else batch)


def is_concrete(x: Tensor) -> bool:
    """Whether the values of a tensor can be read: no function of it is being traced."""
    return True


def under_xla() -> bool:
    """Whether XLA compiles what is being computed."""
    return False


def additive(query: Tensor, key: Tensor, scale: Tensor, training: bool) -> Tensor | None:
    """Return `vᵀ tanh(q + k)` without a tensor `(B, Tq, Tv, units)`; None where the formula serves.

    It serves small scores, a single query or key, lengths that are not known, and what runs
    operation by operation on TensorFlow and JAX. Derivatives of any order are those of the formula.

    Args:
        query: float32 or wider, `(B, Tq, units)`.
        key: `(B, Tv, units)`.
        scale: `v`, `(units,)`.
        training: whether gradients may follow. TensorFlow then compiles a function for each batch
            size, otherwise only where it is known.
    """
    return None


def count_hidden(query: Tensor, key: Tensor, batch: int) -> int:
    """Return the size of the formula's tensor `(B, Tq, Tv, units)`; 0 where the formula serves.

    An unknown `B` is `batch`, or nothing if that is 0.
    """
    rows, queries, units = query.shape
    sizes = (rows or batch, queries, key.shape[1], units)
    numbers = all(isinstance(size, int) for size in sizes)
    served = rows != key.shape[0] or not numbers or 1 in (queries, key.shape[1])
    return 0 if served else math.prod(sizes)


def in_gpu_loop() -> bool:
    """Whether a step of `scan` or `unfold` is being traced that XLA compiles for a GPU."""
    return False


def wanted_device() -> str:
    """Return `KERAS_ATTENTION_DEVICE`, which overrides what a backend sees: cpu, gpu or nothing.

    With `gpu`, what a card would run is traced and compiled on a machine without one.

    Raises:
        ValueError: the variable has another value.
    """
    device = os.environ.get("KERAS_ATTENTION_DEVICE", "")
    if device not in ("", "cpu", "gpu"):
        raise ValueError(f"KERAS_ATTENTION_DEVICE expected cpu or gpu. Received: {device}")
    return device


def on_gpu() -> bool:
    """Whether the backend computes on a GPU, where something is written for one."""
    return wanted_device() == "gpu"


def for_gpu() -> bool:
    """Whether XLA compiles what is being computed for a GPU."""
    return False


def saved(make: Callable[..., Tensor], *args: Any) -> Tensor:
    """Return what `make` returns in a step of `scan`, whose gradient may read it."""
    return make(*args)
