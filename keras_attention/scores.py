"""Score functions: how well each query fits each key, before masks and before the distribution.

Every function is pure and returns scores `(B, Tq, Tv)`, in the dtype of the queries, from float
queries `(B, Tq, ·)` and keys `(B, Tv, ·)`; products take heads `(B, heads, T, ·)` as well.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import KerasTensor, ops

from keras_attention import backend, switch

Tensor = Any


def dot(query: Tensor, key: Tensor) -> Tensor:
    """Dot-product score `q·k` (Luong et al. 2015, arXiv 1508.04025, section 3.1).

    Float16, which products of any size would overflow, gives float32.
    """
    if keras.backend.standardize_dtype(query.dtype) == "float16":
        query, key = ops.cast(query, "float32"), ops.cast(key, "float32")
    return ops.matmul(query, ops.swapaxes(key, -1, -2))


def scaled_dot(query: Tensor, key: Tensor) -> Tensor:
    """Scaled dot-product score `q·k / sqrt(dim)` (Vaswani et al. 2017, arXiv 1706.03762, eq. 1)."""
    # Scaling the query costs Tq·dim products instead of Tq·Tv.
    return dot(query * (query.shape[-1] ** -0.5), key)


def additive(query: Tensor, key: Tensor, scale: Tensor) -> Tensor:
    """Additive score `vᵀ tanh(q + k)` on projected inputs (Bahdanau et al. 2014, arXiv 1409.0473).

    With `q = W s` and `k = U h` this is the alignment model of the paper's appendix A.1.2.

    Half precision is computed in float32. Large scores of known lengths are computed without the
    `(B, Tq, Tv, units)` tensor of the formula: see `keras_attention.backend.generic.additive`.

    Args:
        query: projected queries, `(B, Tq, units)`; B may be 1.
        key: projected keys, `(B, Tv, units)`; B may be 1.
        scale: `v`, `(units,)`.

    Raises:
        ValueError: if the batch sizes differ and neither is 1.
    """
    sizes = query.shape[0], key.shape[0]
    if not (sizes[0] == sizes[1] or None in sizes or 1 in sizes):
        raise ValueError(
            "scores.additive expected queries and keys of one batch size, or of 1. "
            f"Received: query {tuple(query.shape)}, key {tuple(key.shape)}"
        )
    dtype, scores = keras.backend.standardize_dtype(query.dtype), None
    if KerasTensor not in (type(query), type(key), type(scale)):
        wide = "float32" if dtype in ("float16", "bfloat16") else dtype
        query, key, scale = ops.cast(query, wide), ops.cast(key, wide), ops.cast(scale, wide)
        settings = switch.current.get()
        if settings.fast and not settings.exporting:  # an export must not need XLA
            scores = backend.additive(query, key, scale, settings.training)
    if scores is None:
        hidden = ops.tanh(ops.expand_dims(query, 2) + ops.expand_dims(key, 1))
        scores = backend.project(hidden, scale)  # of (B, Tq, Tv, units)
    return ops.cast(scores, dtype)


def location(query: Tensor, kernel: Tensor, length: int | Tensor) -> Tensor:
    """Location score `W q`, one for each place (Luong et al. 2015, arXiv 1508.04025, section 3.1).

    Args:
        query: `(B, Tq, dq)`.
        kernel: `W`, `(dq, max_length)`.
        length: `Tv`, at most `max_length`.
    """
    return backend.project(query, kernel[:, :length])
