"""Multiplicative attention: dot, scaled dot and general."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_attention._attention import Attention
from keras_attention.shapes import Tensor

_SCORES = ("dot", "scaled_dot", "general")


def dot_score(query: Tensor, key: Tensor) -> Tensor:
    """Dot-product score `q·k` (Luong et al. 2015, arXiv 1508.04025, section 3.1).

    Float16 inputs give float32 scores: products in float16 overflow.

    Args:
        query: float `(..., Tq, dim)`.
        key: `(..., Tv, dim)`.

    Returns:
        The scores `(..., Tq, Tv)`.
    """
    if keras.backend.standardize_dtype(query.dtype) == "float16":
        query, key = ops.cast(query, "float32"), ops.cast(key, "float32")
    return ops.matmul(query, ops.swapaxes(key, -1, -2))


@keras.saving.register_keras_serializable("keras_attention")
class MultiplicativeAttention(Attention):
    """Multiplicative attention: a product of query and key.

    Args:
        score: `"dot"`, `q·k`, and `"general"`, `qᵀ W k` (Luong et al. 2015, arXiv 1508.04025,
            section 3.1), or `"scaled_dot"`, `q·k / sqrt(dim)` (Vaswani et al. 2017, arXiv
            1706.03762), where `dim` is the width of a head.
        use_scale: whether the score is multiplied by a learned scalar `g`, 1 at the start.
        **kwargs: arguments of `Attention`, which also describes the call and the output.

    Weights: `kernel` `(dq, dk)` for `"general"`; `scale` `()` with `use_scale`.

    With several heads, `q` and `k` are split among the heads; for `"general"`, `q` and `W k`.

    Raises:
        ValueError: if the score is unknown, or if queries and keys have different widths and the
            score is not `"general"`.
    """

    def __init__(self, score: str = "dot", use_scale: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._expect_one_of("score", score, _SCORES)
        self.score = score
        self.use_scale = use_scale

    def build_score(self, query_dim: int, key_dim: int) -> None:
        """Make the kernel of `"general"` and the scale."""
        self._expect_divided("a query", (query_dim,))
        if self.score == "general":
            self.kernel = self.add_kernel((query_dim, key_dim), "kernel")
        else:
            expected = f"query and key of the same width for score={self.score!r}"
            received = f"query width {query_dim}, key width {key_dim}"
            self._expect(query_dim == key_dim, expected, received)
        self.scale = self.add_weight((), "ones", name="scale") if self.use_scale else None

    def queries(self, query: Tensor) -> Tensor:
        """Return the queries, times the scale if `use_scale`."""
        if self.scale is not None:
            query = query * ops.cast(self.scale, self.compute_dtype)
        return self.split_heads(query)

    def keys(self, key: Tensor, mask: Tensor | None) -> Tensor:
        """Return `W k` for `"general"`, otherwise the keys."""
        if self.score == "general":
            kernel = ops.cast(self.kernel, self.compute_dtype)
            key = ops.matmul(key, ops.transpose(kernel))
        return self.split_heads(key)

    def compute_scores(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the products of queries and projected keys."""
        if self.score == "scaled_dot":  # scaling queries multiplies Tq·dim numbers, scores Tq·Tv
            query = query * (query.shape[-1] ** -0.5)
        return dot_score(query, key)
