"""Loops over time, and products and gathers in a loop, for every backend.

They are written in Python and operations of Keras. `on_tensorflow.py`, `on_jax.py` and
`on_torch.py` replace some of them in `keras_attention.backend`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

from keras import ops, tree

Tensor = Any


def scan(
    step: Callable[[Any, Any], tuple[Any, Any]],
    state: Any,
    inputs: Any,
    output_dtypes: Any,
) -> tuple[Any, Any]:
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
    length = tree.flatten(inputs)[0].shape[0]
    if length == 0:
        return nothing(step, state, inputs), state
    # Unstacked, not indexed: an ONNX graph then refuses other lengths than the one that was traced.
    for row in zip(*(ops.unstack(x) for x in tree.flatten(inputs)), strict=True):
        output, state = step(tree.pack_sequence_as(inputs, row), state)
        outputs.append(output)
    return tree.map_structure(lambda *xs: ops.stack(xs), *outputs), state


def nothing(step: Callable[[Any, Any], tuple[Any, Any]], state: Any, inputs: Any) -> Any:
    """Return the outputs `(0, ...)` of no steps: those of a step with zeros say their shapes."""
    rows = tree.map_structure(lambda x: ops.zeros(ops.shape(x)[1:], x.dtype), inputs)
    return tree.map_structure(
        lambda x: ops.zeros((0, *ops.shape(x)), x.dtype), step(rows, state)[0]
    )


def unfold(
    step: Callable[[Tensor, Any], tuple[Any, Any]],
    state: Any,
    done: Callable[[Any], Tensor],
    max_length: int | Tensor,
    pause: Callable[[Any], Tensor] | None = None,
    resume: Callable[[Any], Any] | None = None,
) -> tuple[Any, Any, Tensor]:
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


def matmul(x: Tensor, y: Tensor) -> Tensor:
    """Return the product of `(..., n, k)` and `(..., k, m)`, in float64 where both are."""
    return ops.matmul(x, y)


def project(x: Tensor, kernel: Tensor) -> Tensor:
    """Return the product of `(..., m)` and a kernel `(m, n)` or `(m,)`."""
    return ops.matmul(x, kernel)


def times_transposed(x: Tensor, y: Tensor) -> Tensor:
    """Return the product of `(..., n, k)` and the transpose of `(..., m, k)`."""
    return ops.matmul(x, ops.swapaxes(y, -1, -2))


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


def greatest(x: Tensor, least: float, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the greatest of `x` and `least` over an axis, or of all, where there may be none."""
    return ops.max(x, axis=axis, keepdims=keepdims, initial=least)


def traces_onnx() -> bool:
    """Whether a graph of ONNX is being traced, on PyTorch: loops are unrolled there."""
    return False


def share(rows: Any, batch: Any) -> Any:
    """Return how many of `rows` rows share each of `batch` rows, where `batch` may be 0."""
    return rows // (batch or 1) if isinstance(batch, int) else rows // batch


def is_concrete(x: Tensor) -> bool:
    """Whether the values of a tensor can be read: no function of it is being traced."""
    return True


def is_tensorflow() -> bool:
    """Whether the backend is TensorFlow."""
    return False


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

    Args:
        query: `(B, Tq, units)`.
        key: `(B, Tv, units)`.
        batch: an unknown `B`; 0 for none.
    """
    rows, queries, units = query.shape
    sizes = (rows or batch, queries, key.shape[1], units)
    numbers = all(isinstance(size, int) for size in sizes)
    if rows != key.shape[0] or not numbers or queries == 1 or key.shape[1] == 1:
        return 0
    return math.prod(sizes)


def in_loop() -> bool:
    """Whether a step of `scan` or `unfold` is being traced; False where nobody asks."""
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
