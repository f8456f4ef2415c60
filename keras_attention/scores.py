"""Score functions: how well each query fits each key, before masks and before the distribution.

Every function is pure and returns scores of shape `(B, Tq, Tv)` from queries `(B, Tq, ·)` and
keys `(B, Tv, ·)`.
"""

from __future__ import annotations

from typing import Any

from keras import KerasTensor, backend, ops

from keras_attention.backend import project
from keras_attention.fast import switch
from keras_attention.shapes import alike

Tensor = Any


def dot(query: Tensor, key: Tensor) -> Tensor:
    """Dot-product score `q·k` (Luong et al. 2015, arXiv 1508.04025, section 3.1).

    Args:
        query: float tensor `(..., Tq, dim)`.
        key: float tensor `(..., Tv, dim)`.

    Returns:
        Scores `(..., Tq, Tv)` in the dtype of the inputs; float32 for float16, which products
        of any size would overflow.
    """
    if backend.standardize_dtype(query.dtype) == "float16":
        query, key = ops.cast(query, "float32"), ops.cast(key, "float32")
    return ops.matmul(query, ops.swapaxes(key, -1, -2))


def scaled_dot(query: Tensor, key: Tensor) -> Tensor:
    """Scaled dot-product score `q·k / sqrt(dim)` (Vaswani et al. 2017, arXiv 1706.03762, eq. 1).

    Args:
        query: float tensor `(..., Tq, dim)`.
        key: float tensor `(..., Tv, dim)`.

    Returns:
        Scores `(..., Tq, Tv)`, of the dtype that `dot` returns.
    """
    # Scaling the query costs Tq·dim products instead of Tq·Tv.
    return dot(query * (query.shape[-1] ** -0.5), key)


def additive(query: Tensor, key: Tensor, scale: Tensor) -> Tensor:
    """Additive score `vᵀ tanh(q + k)` on projected inputs (Bahdanau et al. 2014, arXiv 1409.0473).

    With `q = W s` and `k = U h` this is the alignment model of the paper's appendix A.1.2.

    Half precision is computed in float32. Large scores of known lengths are computed without the
    `(B, Tq, Tv, units)` tensor of the formula: see `keras_attention.backend.generic.additive`.

    Args:
        query: projected queries, float tensor `(B, Tq, units)`; B may be 1.
        key: projected keys, float tensor `(B, Tv, units)`; B may be 1.
        scale: `v`, float tensor `(units,)`.

    Returns:
        Scores `(B, Tq, Tv)` in the dtype of the query.

    Raises:
        ValueError: if the batch sizes differ and neither is 1.
    """
    batches = query.shape[0], key.shape[0]
    if not alike(*batches) and 1 not in batches:
        raise ValueError(
            "scores.additive expected queries and keys of one batch size, or of 1. "
            f"Received: query {tuple(query.shape)}, key {tuple(key.shape)}"
        )
    dtype, scores = backend.standardize_dtype(query.dtype), None
    if KerasTensor not in (type(query), type(key), type(scale)):
        wide = "float32" if dtype in ("float16", "bfloat16") else dtype
        query, key, scale = ops.cast(query, wide), ops.cast(key, wide), ops.cast(scale, wide)
        scores = switch.additive(query, key, scale)
    if scores is None:
        hidden = ops.tanh(ops.expand_dims(query, 2) + ops.expand_dims(key, 1))
        scores = project(hidden, scale)  # of (B, Tq, Tv, units)
    return ops.cast(scores, dtype)


def location(query: Tensor, kernel: Tensor, length: int | Tensor) -> Tensor:
    """Location score `W q`, one for each place (Luong et al. 2015, arXiv 1508.04025, section 3.1).

    Args:
        query: float tensor `(B, Tq, dq)`.
        kernel: `W`, float tensor `(dq, max_length)`.
        length: `Tv`, at most `max_length`.

    Returns:
        Scores `(B, Tq, Tv)`.
    """
    return project(query, kernel[:, :length])
