"""Groups of a beam that keep apart (Vijayakumar et al. 2018, arXiv 1610.02424)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops

from keras_attention.search.tokens import Shortlist

Tensor = Any


class Taken(NamedTuple):
    """What a group has chosen at a step.

    Attributes:
        tokens: int32 `(B, W)`.
        ended: boolean `(B, W)`, whether they came after the end and do not count.
    """

    tokens: Tensor
    ended: Tensor


def rows(log_probs: Any, group: int, num_groups: int, share: int) -> Any:
    """Return the rows of one group of log-probabilities `(B·W, V)` or of a shortlist."""

    def mine(x: Tensor) -> Tensor:
        width = ops.shape(x)[-1]
        return ops.reshape(ops.reshape(x, (-1, num_groups, share, width))[:, group], (-1, width))

    if isinstance(log_probs, Shortlist):
        return Shortlist(*(mine(x) for x in log_probs))
    return mine(log_probs)


def with_cost(
    log_probs: Any, width: int, before: list[Taken], diversity: float
) -> tuple[Any, Callable[[Tensor], Tensor]]:
    """Return the log-probabilities less what tokens cost, and that cost as a function of tokens."""
    taken = ops.concatenate([x.tokens for x in before], axis=1)  # (B, n)
    counts = ops.concatenate([ops.logical_not(x.ended) for x in before], axis=1)

    def cost(ids: Tensor) -> Tensor:  # (B, ...) to what each costs
        shape = (-1, *[1] * (len(ids.shape) - 1), taken.shape[1])
        same = ops.equal(ops.expand_dims(ids, -1), ops.reshape(taken, shape))
        same = ops.logical_and(same, ops.reshape(counts, shape))
        return diversity * ops.sum(ops.cast(same, "float32"), axis=-1)

    listed = isinstance(log_probs, Shortlist)
    values = ops.cast(log_probs.log_probs if listed else log_probs, "float32")
    size = ops.shape(values)[-1]
    if listed:
        ids = ops.reshape(ops.cast(log_probs.ids, "int32"), (-1, width, size))
        return Shortlist(values - ops.reshape(cost(ids), (-1, size)), log_probs.ids), cost
    vocabulary = ops.reshape(ops.arange(size, dtype="int32"), (1, -1))
    vocabulary = ops.broadcast_to(vocabulary, (ops.shape(taken)[0], size))
    costs = ops.repeat(cost(vocabulary), width, axis=0)
    return values - costs, cost
