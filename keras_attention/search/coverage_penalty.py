"""The penalty for source positions that a hypothesis did not look at (Wu et al. 2016, eq. 14)."""

from __future__ import annotations

from typing import Any

from keras import ops

Tensor = Any

NOT_COVERED = 1e-6  # the least that a source position counts as looked at


def start(memory_mask: Tensor, width: int) -> Tensor:
    """Return the coverage before the first step, `(B, W, S)`, of a mask `(B, S)`.

    Masked positions are covered from the start.
    """
    covered = ops.cast(ops.logical_not(ops.cast(memory_mask, "bool")), "float32")
    return ops.repeat(ops.expand_dims(covered, 1), width, axis=1)


def add(coverage: Tensor, weights: Tensor, finished: Tensor) -> Tensor:
    """Return the coverage `(B, W, S)` after a step.

    Args:
        coverage: before it.
        weights: of the step, `(B·W, S)` or `(B·W, heads, S)`, of which the mean counts.
        finished: boolean `(B, W)`, the hypotheses that look at nothing any more.
    """
    weights = ops.cast(weights, "float32")
    if len(weights.shape) > 2:
        weights = ops.mean(weights, axis=1)
    width = finished.shape[1]
    looked = coverage + ops.reshape(weights, (-1, width, ops.shape(weights)[-1]))
    return ops.where(ops.expand_dims(finished, -1), coverage, looked)


def loss(coverage: Tensor) -> Tensor:
    """Return `(B, W)`, at most 0, of what each position of `(B, W, S)` was looked at in all."""
    return ops.sum(ops.log(ops.clip(coverage, NOT_COVERED, 1.0)), axis=-1)
