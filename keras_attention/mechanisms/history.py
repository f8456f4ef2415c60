"""What additive attention that looks at its own past has in common."""

from __future__ import annotations

from typing import Any

from keras import ops

from keras_attention import distributions
from keras_attention.attention import Tensor
from keras_attention.mechanisms.additive import AdditiveAttention
from keras_attention.weighing import Memory


class HistoryAttention(AdditiveAttention):
    """Base class: `vᵀ tanh(W q + U k_j + f_j + b)`, where `f` is made of the weights so far.

    A subclass gives `features`. The state is the last weights or their sum so far, float32
    `(B, Tv)`, zeros before the first query.
    """

    sequential = True
    cumulative = True

    def __init__(self, units: int, use_bias: bool | None = True, **kwargs: Any) -> None:
        super().__init__(units, use_bias=use_bias, **kwargs)
        self._expect(self.num_heads == 1, "num_heads=1", f"num_heads={self.num_heads}")

    def features(self, history: Tensor) -> Tensor:
        """Return `f` `(rows, Tv, units)` of the history `(rows, Tv)`."""
        raise NotImplementedError

    def initial_state(self, memory: Memory) -> Tensor:
        """Return the history before the first query: zeros."""
        return ops.zeros(ops.shape(memory.value)[:2], self.wide_dtype)

    def history_scores(self, query: Tensor, memory: Memory, state: Tensor) -> Tensor:
        """Return the scores `(B, n, Tv)` of projected queries `(B, n, units)`."""
        (batch, length), count = ops.shape(memory.value)[:2], ops.shape(query)[1]
        features = self.features(ops.cast(state, self.compute_dtype))
        features = ops.reshape(features, (batch, count, length, self.units))
        keys = ops.expand_dims(memory.key, 1) + features
        keys = ops.reshape(keys, (batch * count, length, self.units))
        rows = ops.reshape(query, (-1, 1, self.units))
        return ops.reshape(self.score(rows, keys), (batch, count, length))

    def weigh(
        self,
        query: Tensor,
        memory: Memory,
        state: Tensor,
        mask: Tensor | None,
        noise: dict[str, Tensor],
    ) -> tuple[Tensor, Tensor]:
        """Return the weights and the next history; arguments as the contract says."""
        scores = ops.cast(self.history_scores(query, memory, state), self.wide_dtype)
        weights = distributions.BY_NAME[self.distribution](scores, mask)
        new = ops.reshape(weights, ops.shape(state))
        return weights, state + new if self.cumulative else new
