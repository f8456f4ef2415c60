"""All queries of a mechanism that remembers what it did for the query before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keras import ops, tree

from keras_attention import backend
from keras_attention.shapes import keep_where

if TYPE_CHECKING:
    from keras_attention.attention import Attention, Memory

Tensor = Any


def attend_in_turn(
    attention: Attention,
    query: Any,
    memory: Memory,
    query_mask: Tensor | None,
    mask: Tensor | None,
    training: bool | None,
) -> tuple[Tensor, Tensor]:
    """Attend with each query in turn, passing the mechanism's state from one to the next.

    Args:
        attention: the mechanism.
        query: from `attention.queries`, for `Tq` queries.
        memory: from `attention.prepare`.
        query_mask: boolean `(B, Tq)` or None; the state stays where it is False.
        mask: boolean `(B | 1, Tq, Tv | 1)` or None, for the weights.
        training: whether there is dropout and noise.

    Returns:
        Contexts `(B, Tq, dv)` and weights `(B, Tq, Tv)`, with heads `(B, heads, Tq, Tv)`.
    """
    steps = {"query": tree.map_structure(lambda x: ops.expand_dims(_time_major(x), 2), query)}
    length = ops.shape(tree.flatten(query)[0])[1]
    steps["noise"] = attention.noise((length, *attention.weights_shape(memory, 1)), training)
    if mask is not None:
        mask = ops.broadcast_to(mask, (ops.shape(memory.value)[0], length, ops.shape(mask)[-1]))
        steps["mask"] = ops.expand_dims(_time_major(mask), 2)  # (Tq, B, 1, Tv | 1)
    if query_mask is not None:
        steps["valid"] = _time_major(query_mask)  # (Tq, B)

    def step(now, state):
        context, weights, new = attention.attend(
            now["query"], memory, state, now.get("mask"), now["noise"]
        )
        if "valid" in now:
            new = keep_where(now["valid"], new, state)
        return (ops.squeeze(context, 1), ops.squeeze(weights, 1)), new

    dtypes = (attention.compute_dtype, attention.compute_dtype)
    outputs, _ = backend.scan(step, attention.initial_state(memory), steps, dtypes)
    return tree.map_structure(lambda x: ops.moveaxis(x, 0, 1), outputs)


def _time_major(x: Tensor) -> Tensor:
    return ops.moveaxis(x, 1, 0)
