"""The sentences of a search that are still running, where the others leave the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keras import ops, tree

from keras_attention import backend

Tensor = Any


def decoder(
    step: Callable, batch_size: int | Tensor, memory: Any
) -> tuple[Callable, dict[str, Any]]:
    """Return the step as `(tokens, state, running)`, and what is running before the first step.

    Where sentences may leave the batch, `running` holds the `rows` of those that are in it, int32,
    and their `memory`; the state has their rows alone. Otherwise it is empty.
    """
    if memory is None:
        return lambda tokens, state, _: step(tokens, state), {}
    if not backend.shapes_may_change():
        return lambda tokens, state, _: step(tokens, state, memory), {}
    running = {"rows": ops.arange(batch_size, dtype="int32"), "memory": memory}
    return lambda tokens, state, running: step(tokens, state, running["memory"]), running


def running_rows(running: dict[str, Any], *tensors: Tensor) -> tuple[list[Tensor], Tensor | None]:
    """Return of each tensor `(B, ...)` the rows that are running, and their numbers."""
    rows = running.get("rows")
    return [x if rows is None else ops.take(x, rows, axis=0) for x in tensors], rows


def put_back(whole: tuple[Tensor, ...], rows: Tensor | None, tensors: tuple[Tensor, ...]) -> tuple:
    """Put the rows that were running back into tensors `(B, ...)`."""
    if rows is None:
        return tensors
    index = ops.expand_dims(rows, 1)
    return tuple(ops.scatter_update(x, index, new) for x, new in zip(whole, tensors, strict=True))


def spread(outputs: dict[str, Tensor], rows: Tensor | None, batch_size: int | Tensor) -> dict:
    """Return a step's outputs for all `B` sentences: nothing changes for those that have left."""
    if rows is None:
        return outputs
    index, whole = ops.expand_dims(rows, 1), {}
    for name, x in outputs.items():
        rest = ops.zeros((batch_size, *ops.shape(x)[1:]), x.dtype)
        if name == "parents":
            rest = rest + ops.arange(x.shape[1], dtype=x.dtype)
        whole[name] = ops.scatter_update(rest, index, x)
    return whole


def leave(
    settled: Tensor, state: Any, running: dict[str, Any], parents: Tensor
) -> tuple[Any, dict[str, Any]]:
    """Return the state of the next step, rows of the last one's by `parents` `(B, [W])`.

    Where they may, sentences that are settled leave state, rows and memory.
    """
    if running:
        keep = ops.nonzero(ops.logical_not(settled))[0]
        parents = ops.take(parents, keep, axis=0)

        def shrunk():
            return tree.map_structure(lambda x: ops.take(x, keep, axis=0), running)

        running = ops.cond(ops.any(settled), shrunk, lambda: running)
    if running or len(parents.shape) > 1:
        parents = ops.reshape(parents, (-1,))
        state = tree.map_structure(lambda x: ops.take(x, parents, axis=0), state)
    return state, running
