"""A sequence of queries, which attend all at once or one after the other."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
from keras import ops, tree

from keras_attention import backend
from keras_attention.shapes import at_least_one, both, keep_where

Tensor = Any


def arranged(
    layer: Any,
    query: Tensor,
    memory: Any,
    state: Any,
    query_mask: Tensor | None,
    training: bool | None,
    mask: Tensor | None = None,
) -> tuple[Any, ...]:
    """Return how a layer attends with a sequence of queries.

    Args:
        layer: an `Attention`.
        query: `(B, Tq, dq)`.
        memory: from `Attention.prepare`.
        state: before the first query.
        query_mask: boolean `(B, Tq)` or None.
        training: whether there is dropout and noise.
        mask: boolean `(B | 1, Tq | 1, Tv | 1)` or None.

    Returns:
        `Attention.attend`, for all queries at once, or `attend_in_turn`; its arguments; and the
        state after the last query, None of `attend_in_turn`, which returns it.
    """
    query = ops.cast(query, layer.compute_dtype)
    batch, length = ops.shape(query)[:2]
    if query_mask is not None:
        mask = both(mask, ops.expand_dims(query_mask, -1))
    noise = None
    if layer.sequential:
        if training:
            noise = layer.draw_noise((length, *layer.weights_shape(memory, 1)))
        attend = functools.partial(attend_in_turn, layer.attend, query_mask)
        return attend, layer.queries(query), memory, state, mask, noise, None
    if training:
        noise = layer.draw_noise(layer.weights_shape(memory, length))
    states, last = layer.states_at_once(state, query_mask, batch, length)
    return layer.attend, layer.queries(query), memory, states, mask, noise, last


def attend_in_turn(
    attend: Callable[..., tuple[Tensor, Tensor, Any]],
    query_mask: Tensor | None,
    query: Any,
    memory: Any,
    state: Any,
    mask: Tensor | None,
    noise: dict[str, Tensor] | None,
) -> tuple[Tensor, Tensor, Any]:
    """Attend with each query in turn, passing the mechanism's state from one to the next.

    Args:
        attend: `Attention.attend`.
        query_mask: boolean `(B, Tq)` or None; the state stays where it is False.
        query: from `Attention.queries`, for `Tq` queries.
        memory: from `Attention.prepare`.
        state: before the first query.
        mask: boolean `(B | 1, Tq, Tv | 1)` or None, for the weights.
        noise: from `Attention.draw_noise`, `(Tq, ...)`, or None.

    Returns:
        Contexts `(B, Tq, dv)`, weights `(B, Tq, Tv)`, with heads `(B, heads, Tq, Tv)`, and the
        state after the last query.
    """
    steps = {"query": tree.map_structure(lambda x: ops.expand_dims(_time_major(x), 2), query)}
    if noise is not None:
        steps["noise"] = noise
    if mask is not None:
        rows = ops.shape(tree.flatten(query)[0])[:2]
        mask = ops.broadcast_to(mask, (*rows, ops.shape(mask)[-1]))
        steps["mask"] = ops.expand_dims(_time_major(mask), 2)  # (Tq, B, 1, Tv | 1)
    if query_mask is not None:
        steps["valid"] = _time_major(query_mask)  # (Tq, B)
    length = tree.flatten(steps["query"])[0].shape[0]
    if length is None:
        steps = tree.map_structure(at_least_one, steps)

    def step(row: dict[str, Any], state: Any) -> tuple[Any, Any]:
        context, weights, new = attend(
            row["query"], memory, state, row.get("mask"), row.get("noise")
        )
        if "valid" in row:
            new = keep_where(row["valid"], new, state)
        return (ops.squeeze(context, 1), ops.squeeze(weights, 1)), new

    dtype = keras.backend.standardize_dtype(memory.value.dtype)
    outputs, state = backend.scan(step, state, steps, (dtype, dtype))
    if length is None:
        count = ops.shape(tree.flatten(query)[0])[1]
        outputs = tree.map_structure(lambda x: x[:count], outputs)
    contexts, weights = (ops.moveaxis(x, 0, 1) for x in outputs)
    return contexts, weights, state


def _time_major(x: Tensor) -> Tensor:
    return ops.moveaxis(x, 1, 0)
