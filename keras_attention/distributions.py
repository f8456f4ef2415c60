"""Distributions: scores and a mask in, attention weights out.

Masked positions get weight exactly 0, and a row with nothing to attend to gets zeros throughout.
"""

from __future__ import annotations

from typing import Any

from keras import backend, ops

Tensor = Any


def softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Softmax over the last axis, restricted to the positions that the mask allows.

    Computed in at least float32 whatever the dtype of the scores.

    Args:
        scores: float tensor `(..., Tv)`.
        mask: boolean tensor that broadcasts to the shape of the scores; True may be attended to.

    Returns:
        Weights of the shape and dtype of the scores. Rows sum to 1, fully masked rows to 0.
    """
    dtype = backend.standardize_dtype(scores.dtype)
    if dtype in ("float16", "bfloat16"):
        scores = ops.cast(scores, "float32")
    if mask is None:
        return ops.cast(ops.softmax(scores, axis=-1), dtype)
    scores = ops.where(mask, scores, ops.cast(-1e30, scores.dtype))
    highest = ops.stop_gradient(ops.max(scores, axis=-1, keepdims=True))
    weights = ops.exp(scores - highest) * ops.cast(mask, scores.dtype)
    total = ops.sum(weights, axis=-1, keepdims=True)
    # The largest weight is exp(0), so the total is at least 1 unless the whole row is masked.
    return ops.cast(weights / ops.maximum(total, 1.0), dtype)
