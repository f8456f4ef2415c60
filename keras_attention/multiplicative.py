"""Multiplicative attention: dot, scaled dot and general."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_attention import scores
from keras_attention.attention import Attention, Tensor

SCORES = ("dot", "scaled_dot", "general")


@keras.saving.register_keras_serializable("keras_attention")
class MultiplicativeAttention(Attention):
    """Multiplicative attention: a product of query and key.

    Args:
        score: `"dot"`, `q·k`, and `"general"`, `qᵀ W k` (Luong et al. 2015, arXiv 1508.04025,
            eq. 8), or `"scaled_dot"`, `q·k / sqrt(dim)` (Vaswani et al. 2017, arXiv 1706.03762).
        kernel_initializer: initializer of `W`.
        dropout: fraction of the attention weights dropped in training.
        seed: integer seed of the dropout.

    Weights: `kernel` `(dq, dk)` for `"general"`, otherwise none.

    Call arguments and output are those of `keras_attention.attention.Attention`.

    Raises:
        ValueError: for an unknown score, and for queries and keys of different width where the
            score has no kernel between them.
    """

    def __init__(
        self, score: str = "dot", kernel_initializer: Any = "glorot_uniform", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if score not in SCORES:
            raise ValueError(
                f"MultiplicativeAttention expected score to be one of {', '.join(SCORES)}. "
                f"Received: score={score!r}"
            )
        self.score_name = score
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build_score(self, query_dim: int, key_dim: int) -> None:
        """Make the kernel of `"general"`."""
        if self.score_name == "general":
            shape = (query_dim, key_dim)
            self.kernel = self.add_weight(shape, self.kernel_initializer, name="kernel")
        elif query_dim != key_dim:
            raise ValueError(
                f"MultiplicativeAttention expected query and key of the same width for "
                f"score={self.score_name!r}. Received: query width {query_dim}, key width {key_dim}"
            )

    def project_key(self, key: Tensor) -> Tensor:
        """Return `W k` for `"general"`, otherwise the keys."""
        if self.score_name != "general":
            return key
        kernel = ops.cast(self.kernel, self.compute_dtype)
        return ops.matmul(key, ops.transpose(kernel))

    def score(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the products of queries and projected keys."""
        return (scores.scaled_dot if self.score_name == "scaled_dot" else scores.dot)(query, key)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "score": self.score_name,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
