"""Monotonic chunkwise attention."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_attention import distributions
from keras_attention.attention import Attention, Memory, Noise, Tensor
from keras_attention.mechanisms.borrowed import has_score_alone
from keras_attention.mechanisms.monotonic import MonotonicAttention


@keras.saving.register_keras_serializable("keras_attention")
class MonotonicChunkwiseAttention(MonotonicAttention):
    """MoChA: soft attention to the chunk that ends where monotonic attention stops.

    Chiu and Raffel 2018 (arXiv 1712.05382): with the monotonic weights `a` and chunk scores `u`,
    `b_j = Σ_{k=j}^{j+w-1} a_k exp(u_j) / Σ_{l=k-w+1}^{k} exp(u_l)`.

    Args:
        attention: an attention layer whose score decides where to stop.
        chunk_attention: an attention layer whose score weighs the positions of a chunk.
        chunk_size: `w`, number of positions of a chunk.
        mode: as for `MonotonicAttention`.
        noise: as for `MonotonicAttention`.
        bias_initial: as for `MonotonicAttention`.
        **kwargs: see `Attention`, as call arguments and output.

    Weights: those of `MonotonicAttention` and of `chunk_attention`.

    The state is `a`.

    Example:
        ```python
        query, value = keras.random.normal((2, 3, 5)), keras.random.normal((2, 7, 6))
        stop, weigh = AdditiveAttention(8, normalize=True), AdditiveAttention(8)
        context = MonotonicChunkwiseAttention(stop, weigh, chunk_size=2)(query, value)  # (2, 3, 6)
        ```
    """

    def __init__(
        self, attention: Attention, chunk_attention: Attention, chunk_size: int = 2, **kwargs: Any
    ) -> None:
        super().__init__(attention, **kwargs)
        self._expect(
            has_score_alone(chunk_attention) and chunk_attention.num_heads == 1,
            "a chunk_attention with nothing but a score of one head",
            repr(chunk_attention),
        )
        self._expect(
            chunk_attention is not attention, "two attention layers", "the same layer twice"
        )
        self._expect_dtype(chunk_attention)
        self._expect_count("chunk_size", chunk_size)
        self.chunk_attention = chunk_attention
        self.chunk_size = chunk_size

    @property
    def inner(self) -> list[Attention]:
        """The layers whose scores are used, that of the chunks first."""
        return [self.chunk_attention, self.attention]

    def queries(self, query: Tensor) -> dict[str, Tensor]:
        """Return what both inner layers make of the queries."""
        return {"stop": super().queries(query), "chunk": self.chunk_attention.queries(query)}

    def keys(self, key: Tensor, mask: Tensor | None) -> dict[str, Tensor]:
        """Return what both inner layers make of keys and mask."""
        return {"stop": super().keys(key, mask), "chunk": self.chunk_attention.keys(key, mask)}

    def compute_scores(self, query: dict[str, Tensor], key: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the scores of both inner layers."""
        chunk = self.chunk_attention.compute_scores(query["chunk"], key["chunk"])
        return {"stop": super().compute_scores(query["stop"], key["stop"]), "chunk": chunk}

    def weigh(
        self, scores: Any, query: Any, memory: Memory, state: Any, mask: Tensor | None, noise: Noise
    ) -> tuple[Tensor, Any]:
        """Return `b`, and `a` as the next state; arguments as the contract says."""
        stops, state = super().weigh(scores["stop"], query, memory, state, mask, noise)
        chunk_scores = ops.cast(scores["chunk"], self.wide_dtype)
        return chunkwise(chunk_scores, stops, self.chunk_size, mask), state


def chunkwise(scores: Tensor, stops: Tensor, size: int, mask: Tensor | None = None) -> Tensor:
    """Spread the weights `a` `(..., Tv)` over the chunks that end there, by scores `u` (MoChA).

    A chunk has `size` positions, fewer at the start of the memory. A position whose mask is False
    gets weight 0.
    """
    allowed = ops.ones_like(scores, dtype="bool")
    if mask is not None:
        allowed = ops.logical_and(allowed, mask)

    def chunks(x: Tensor) -> Tensor:
        """Return `(..., Tv, w)`: at position k the values of k-w+1 … k."""
        padded = _pad(x, size - 1, 0)
        return ops.stack([padded[..., o : o - size + 1 or None] for o in range(size)], axis=-1)

    inside = ops.cast(chunks(ops.cast(allowed, "int32")), "bool")
    shares = distributions.softmax(chunks(scores), inside)
    parts = shares * ops.expand_dims(stops, -1)
    # Part o of the chunk that ends at k belongs to position k - (size - 1 - o).
    # (An axis of -1 would not be understood in an ONNX graph.)
    padded = _pad(ops.moveaxis(parts, len(parts.shape) - 1, 0), 0, size - 1)
    shifted = [padded[o][..., size - 1 - o : -o or None] for o in range(size)]
    return sum(shifted[1:], shifted[0])


def _pad(x: Tensor, before: int, after: int) -> Tensor:
    return ops.pad(x, [[0, 0]] * (len(x.shape) - 1) + [[before, after]])
