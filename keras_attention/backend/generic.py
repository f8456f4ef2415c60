"""Loops over time, their products and gathers, for every backend; and the switch of fast paths.

This file uses Python and operations of Keras. `on_tensorflow.py`, `on_jax.py` and `on_torch.py`
replace some of its functions in `keras_attention.backend`.

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

# Options of `tf.function`. The library has no Python `if` or `for` on a tensor. Autograph would
# translate the source of each called function, even if the file has changed since its import.
PLAIN_GRAPH = {"autograph": False}

STEPS = 4  # of an iteration on a GPU: 2 launch a tenth more kernels, 8 compile twice as long


class Settings(NamedTuple):
    """The settings of this thread.

    Attributes:
        fast: whether fast paths may run.
        exporting: whether traced functions must run without XLA.
        training: whether a layer is called for training, so that gradients may follow.
        products: dtype of the products in the loops of `fast.loop`; None for the cell's dtype.
        checkpoints: the values of the traced step that `checkpointed` makes, on a GPU.
    """

    fast: bool = True
    exporting: bool = False
    training: bool = False
    products: str | None = None
    checkpoints: Any = None


settings: ContextVar[Settings] = ContextVar("settings", default=Settings())  # noqa: B039


@contextlib.contextmanager
def within(**values: Any) -> Iterator[None]:
    """Give some `Settings` other values within a `with` block."""
    token = settings.set(settings.get()._replace(**values))
    try:
        yield
    finally:
        settings.reset(token)


def fast_paths(enabled: bool) -> AbstractContextManager[None]:
    """Run the fast paths, or the plain formulas, within a `with` block, in this thread alone.

    Args:
        enabled: whether the fast paths may run.
    """
    return within(fast=bool(enabled))


def exporting() -> AbstractContextManager[None]:
    """Trace functions without XLA within a `with` block, as TensorFlow Serving needs them.

    Save a TensorFlow model within it if its batch size and lengths are all known.
    """
    return within(exporting=True)


def scan(step: Step, state: Any, inputs: Any, output_dtypes: Any) -> tuple[Any, Any]:
    """Call `step` for each time step in turn.

    Args:
        step: `(inputs at t, state) -> (outputs at t, state)`. Shapes and dtypes of the state stay.
        state: structure of tensors.
        inputs: structure of tensors `(T, ...)`.
        output_dtypes: the dtype names of the outputs of `step`, in their structure.

    Returns:
        The outputs of all steps, stacked to `(T, ...)`, and the last state.
    """
    outputs: list[Any] = []
    # Unstacked, not indexed: an ONNX graph then refuses any length but the traced one.
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
        done: `state -> ()` boolean tensor. XLA on a GPU takes a few steps of a done state: they
            must not change the results.
        max_length: greatest number of steps; a Python integer on JAX and for XLA.
        pause: `state -> ()` boolean tensor: whether the state goes through `resume` now.
        resume: `state -> state`, which may change the size of first axes. Without XLA only, as
            `pause`.

    Returns:
        The outputs stacked to `(T, ...)`, the last state, and the number of steps taken. `T` is the
        number of steps taken; on JAX, and on TensorFlow where XLA compiles, it is `max_length`
        with zeros after the last step taken.
    """
    outputs, t, longest = [], 0, int(max_length)  # waits for a GPU, once
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
    """Return the rows `index` of `x` `(n, ...)`; no index is negative."""
    return ops.take(x, index, axis=0)


def gather_in_rows(x: Tensor, index: Tensor) -> Tensor:
    """Return `x[b, index[b, i]]`, `(B, k, ...)`, of `x` `(B, n, ...)`; no index is negative."""
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
    """Whether PyTorch is tracing a graph of ONNX, in which loops are unrolled."""
    return False


def group_size(rows: Any, groups: Any) -> Any:
    """Return how many of `rows` rows each of `groups` groups has; there may be no group."""
    if isinstance(groups, int):
        return rows // (groups or 1)
    return rows // (ops.maximum(groups, 1) if ops.is_tensor(groups) else groups)


def is_concrete(x: Tensor) -> bool:
    """Whether the values of a tensor can be read, since no function is being traced."""
    return True


def under_xla() -> bool:
    """Whether XLA compiles the current computation."""
    return False


def additive(query: Tensor, key: Tensor, scale: Tensor, training: bool) -> Tensor | None:
    """Return `vᵀ tanh(q + k)` without a tensor `(B, Tq, Tv, units)`; None where the formula serves.

    The formula serves small scores, a single query or key, unknown lengths, and eager TensorFlow
    and JAX. Derivatives of any order are those of the formula.

    Args:
        query: float32 or wider, `(B, Tq, units)`.
        key: `(B, Tv, units)`.
        scale: `v`, `(units,)`.
        training: whether gradients may follow. TensorFlow then compiles a function for an unknown
            batch size, too.
    """
    return None


def count_hidden(query: Tensor, key: Tensor, batch: int) -> int:
    """Return the size of the formula's tensor `(B, Tq, Tv, units)`; 0 where the formula serves.

    `batch` stands for an unknown `B`; with 0 the formula serves.
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
    """Return `KERAS_ATTENTION_DEVICE`, cpu, gpu or nothing: it overrides the backend's device.

    With `gpu` a machine without a card traces and compiles the programs of one.

    Raises:
        ValueError: the variable has another value.
    """
    device = os.environ.get("KERAS_ATTENTION_DEVICE", "")
    if device not in ("", "cpu", "gpu"):
        raise ValueError(f"KERAS_ATTENTION_DEVICE expected cpu or gpu. Received: {device}")
    return device


def on_gpu() -> bool:
    """Whether the backend computes on a GPU."""
    return wanted_device() == "gpu"


def for_gpu() -> bool:
    """Whether XLA compiles the current computation for a GPU."""
    return False


def checkpointed(make: Callable[..., Tensor], *args: Any) -> Tensor:
    """Return `make(*args)` in a step of `scan`; the gradient of `scan` may read it again."""
    return make(*args)
