"""Additive attention with a memory of its own weights."""

from __future__ import annotations

from typing import Any

from keras import KerasTensor, ops

from keras_attention.attention import Memory, Noise, Tensor
from keras_attention.layer import keeps
from keras_attention.mechanisms.additive import AdditiveAttention


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

    def state_spec(self, batch: int | None, length: int | None) -> KerasTensor:
        """Return the shape and dtype of the history."""
        return KerasTensor((batch, length), self.wide_dtype)

    def initial_state(self, memory: Memory) -> Tensor:
        """Return the history before the first query: zeros."""
        self.expect_memory(memory)
        return ops.zeros(ops.shape(memory.value)[:2], self.wide_dtype)

    def attend(
        self, query: Tensor, memory: Memory, state: Tensor, mask: Tensor | None, noise: Noise
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Attend to the memory as the history marks it; arguments as the contract says."""
        (batch, length), count = ops.shape(memory.value)[:2], ops.shape(query)[1]
        features = self.features(ops.cast(state, self.compute_dtype))
        features = ops.reshape(features, (batch, count, length, self.units))
        keys = ops.expand_dims(memory.key, 1) + ops.cast(features, memory.key.dtype)
        return super().attend(query, memory._replace(key=keys), state, mask, noise)

    def averages(self) -> bool:
        """Whether a context is the average of the memory's values by the weights."""
        own = keeps(self.attend, HistoryAttention.attend)
        return own and keeps(self.average, HistoryAttention.average)

    def compute_scores(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the scores `(B, n, Tv)` of queries `(B, n, ·)`, each with keys `(B, n, Tv, ·)`."""
        batch, count, length, units = ops.shape(key)
        query = ops.reshape(query, (batch * count, 1, units))
        key = ops.reshape(key, (batch * count, length, units))
        return ops.reshape(super().compute_scores(query, key), (batch, count, length))

    def weigh(
        self,
        scores: Tensor,
        query: Tensor,
        memory: Memory,
        state: Tensor,
        mask: Tensor | None,
        noise: Noise,
    ) -> tuple[Tensor, Tensor]:
        """Return the weights and the next history; arguments as the contract says."""
        scores = ops.cast(scores, self.wide_dtype)
        weights, _ = super().weigh(scores, query, memory, state, mask, noise)
        new = ops.reshape(weights, ops.shape(state))
        return weights, state + new if self.cumulative else new
