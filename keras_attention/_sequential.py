"""Attention with one query at a time, for mechanisms whose weights depend on earlier weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
from keras import ops, tree

from keras_attention import backend
from keras_attention.shapes import Tensor, keep_where


def attend_in_turn(
    attend: Callable[..., tuple[Tensor, Tensor, Any]],
    query: Any,
    memory: Any,
    state: Any,
    query_mask: Tensor | None,
    mask: Tensor | None,
    noise: dict[str, Tensor] | None,
) -> tuple[Tensor, Tensor, Any]:
    """Return the result of `Attention.attend_all`; call `attend` for each query in turn.

    `query` is from `Attention.queries`, `noise`, `(Tq, ...)` each, from `Attention.draw_noise`.
    """
    batch, *_, count, _ = ops.shape(tree.flatten(query)[0])  # (B, [heads,] Tq, ·)
    query = tree.map_structure(lambda x: ops.moveaxis(x, len(x.shape) - 2, 0), query)
    steps = {"query": tree.map_structure(lambda x: ops.expand_dims(x, -2), query)}
    if noise is not None:
        steps["noise"] = noise
    if mask is not None:
        mask = ops.broadcast_to(mask, (batch, count, ops.shape(mask)[-1]))
        steps["mask"] = ops.expand_dims(ops.moveaxis(mask, 1, 0), 2)  # (Tq, B, 1, Tv | 1)
    if query_mask is not None:
        steps["valid"] = ops.moveaxis(query_mask, 1, 0)  # (Tq, B)

    def step(row: dict[str, Any], state: Any) -> tuple[Any, Any]:
        context, weights, new = attend(
            row["query"], memory, state, row.get("mask"), row.get("noise")
        )
        if "valid" in row:
            new = keep_where(row["valid"], new, state)
        return (ops.squeeze(context, 1), ops.squeeze(weights, -2)), new

    dtype = keras.backend.standardize_dtype(memory.value.dtype)
    (contexts, weights), state = backend.scan(step, state, steps, (dtype, dtype))
    return ops.moveaxis(contexts, 0, 1), ops.moveaxis(weights, 0, len(weights.shape) - 2), state
