"""Monotonic attention, and monotonic chunkwise attention (MoChA)."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_attention import distributions
from keras_attention._attention import Attention, Memory, Noise
from keras_attention.mechanisms._borrowed import BorrowedScore, has_score_alone
from keras_attention.shapes import Tensor, both


@keras.saving.register_keras_serializable("keras_attention")
class MonotonicAttention(BorrowedScore):
    """Attention that only moves forward (Raffel et al. 2017, arXiv 1704.00784).

    Each query starts at the position of the previous query, moves to the right, and stops at
    position `j` with the probability `p_j = sigmoid(e_j + r)`. The weights are the probabilities of
    stopping, see `keras_attention.distributions.monotonic`. They need not sum to 1.

    Training uses these probabilities. `noise` drives them towards 0 and 1, so that the layer can
    later use mode `"hard"`, which has no gradient. The paper uses the weight-normalised additive
    score and a negative `r`.

    With several heads, each head has a score and moves forward by itself: monotonic multihead
    attention (Ma et al. 2020, arXiv 1909.12406, MMA-IL for soft and MMA-H for hard weights).

    Args:
        attention: an attention layer of this library, whose score and number of heads are used.
        mode: `"parallel"`, or `"hard"`, which is `"parallel"` in training.
        noise: standard deviation of the normal noise that is added to the scores in training.
        bias_initial: `r` at the start.
        **kwargs: arguments of `Attention`, which also describes the call and the output.

    Weights: those of the score and `score_bias` `r`, `()`.

    Example:
        ```python
        query, value = keras.random.normal((2, 3, 5)), keras.random.normal((2, 7, 6))
        score = AdditiveAttention(8, normalize=True)
        context = MonotonicAttention(score, noise=1.0, bias_initial=-1.0)(query, value)  # (2, 3, 6)
        ```
    """

    sequential = True

    def __init__(
        self,
        attention: Attention,
        mode: str = "parallel",
        noise: float = 0.0,
        bias_initial: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(attention, **kwargs)
        self._expect_one_of("mode", mode, distributions.MODES)
        self._expect_number("noise", noise, 0)
        self._expect_number("bias_initial", bias_initial, -float("inf"))
        expected = "no distribution: a mode takes its place"
        self._expect(self.distribution == "softmax", expected, distribution=self.distribution)
        self.mode = mode
        self.noise = noise
        self.bias_initial = bias_initial
        if noise and self.seed_generator is None:
            self.seed_generator = keras.random.SeedGenerator(self.seed)

    def build_score(self, query_dim: int, key_dim: int) -> None:
        """Make the bias of the score."""
        initializer = keras.initializers.Constant(self.bias_initial)
        self.score_bias = self.add_weight((), initializer, name="score_bias")

    def draw_noise(self, shape: tuple[Any, ...]) -> dict[str, Tensor]:
        """Draw dropout's factors, and `"score"`, the noise that is added to the scores."""
        drawn = super().draw_noise(shape)
        if self.noise:
            drawn["score"] = keras.random.normal(
                shape, stddev=self.noise, dtype=self.wide_dtype, seed=self.seed_generator
            )
        return drawn

    def state_spec(self, batch: int | None, length: int | None) -> keras.KerasTensor:
        """Return the shape and dtype of the last weights."""
        heads = [self.num_heads] if self.num_heads > 1 else []
        return keras.KerasTensor((batch, *heads, length), self.wide_dtype)

    def initial_state(self, memory: Memory) -> Tensor:
        """Return the weights before the first query: 1 at position 0.

        They are float32 `(B, Tv)`, with several heads `(B, heads, Tv)`.
        """
        self.expect_memory(memory)
        shape = ops.shape(memory.value)[:-1]
        first = ops.cast(ops.arange(shape[-1]) == 0, self.wide_dtype)
        return ops.broadcast_to(first, shape)

    def weigh(
        self, scores: Any, query: Any, memory: Memory, state: Any, mask: Tensor | None, noise: Noise
    ) -> tuple[Tensor, Any]:
        """Return the weights; the weights are also the next state: see `Attention.weigh`."""
        training = noise is not None
        scores = ops.cast(scores, self.wide_dtype) + ops.cast(self.score_bias, self.wide_dtype)
        if noise and "score" in noise:
            scores = scores + noise["score"]
        mode = "parallel" if training else self.mode
        if 1 in (self.num_heads, scores.shape[-2]):  # the state has the order of the scores
            previous = ops.reshape(state, ops.shape(scores))
            weights = distributions.monotonic(scores, previous, mask, mode)
            return weights, ops.reshape(weights, ops.shape(state))
        batch, heads, count, length = ops.shape(scores)
        # (B·n, heads, Tv) to (B, heads, n, Tv)
        previous = ops.reshape(state, (batch, count, heads, length))
        previous = ops.moveaxis(previous, 2, 1)
        weights = distributions.monotonic(scores, previous, mask, mode)
        return weights, ops.reshape(ops.moveaxis(weights, 1, 2), ops.shape(state))


@keras.saving.register_keras_serializable("keras_attention")
class MonotonicChunkwiseAttention(MonotonicAttention):
    """MoChA: soft attention to the chunk that ends where monotonic attention stops.

    Chiu and Raffel 2018 (arXiv 1712.05382): with the monotonic weights `a` and chunk scores `u`,
    `b_j = Σ_{k=j}^{j+w-1} a_k exp(u_j) / Σ_{l=k-w+1}^{k} exp(u_l)`.

    Args:
        attention: an attention layer whose score decides where to stop.
        chunk_attention: an attention layer whose score weighs the positions of a chunk. It has as
            many heads as `attention`.
        chunk_size: `w`, number of positions of a chunk.
        mode: see `MonotonicAttention`.
        noise: see `MonotonicAttention`.
        bias_initial: see `MonotonicAttention`.
        **kwargs: arguments of `Attention`, which also describes the call and the output.

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
        valid = has_score_alone(chunk_attention) and chunk_attention.num_heads == self.num_heads
        expected = f"a chunk_attention with nothing but a score, of num_heads={self.num_heads}"
        self._expect(valid, expected, repr(chunk_attention))
        different = chunk_attention is not attention
        self._expect(different, "two attention layers", "the same layer twice")
        self._expect_dtype(chunk_attention)
        self._expect_count("chunk_size", chunk_size)
        self.chunk_attention = chunk_attention
        self.chunk_size = chunk_size

    @property
    def inner(self) -> list[Attention]:
        """The layers whose scores are used, the layer of the chunks first."""
        return [self.chunk_attention, self.attention]

    def queries(self, query: Tensor) -> dict[str, Tensor]:
        """Return the queries of both inner layers."""
        return {"stop": super().queries(query), "chunk": self.chunk_attention.queries(query)}

    def keys(self, key: Tensor, mask: Tensor | None) -> dict[str, Tensor]:
        """Return the keys of both inner layers."""
        return {"stop": super().keys(key, mask), "chunk": self.chunk_attention.keys(key, mask)}

    def compute_scores(self, query: dict[str, Tensor], key: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the scores of both inner layers."""
        chunk = self.chunk_attention.compute_scores(query["chunk"], key["chunk"])
        return {"stop": super().compute_scores(query["stop"], key["stop"]), "chunk": chunk}

    def weigh(
        self, scores: Any, query: Any, memory: Memory, state: Any, mask: Tensor | None, noise: Noise
    ) -> tuple[Tensor, Any]:
        """Return `b`, and `a` as the next state: see `Attention.weigh`."""
        stops, state = super().weigh(scores["stop"], query, memory, state, mask, noise)
        chunk_scores = ops.cast(scores["chunk"], self.wide_dtype)
        return chunkwise(chunk_scores, stops, self.chunk_size, mask), state


def chunkwise(scores: Tensor, stops: Tensor, size: int, mask: Tensor | None = None) -> Tensor:
    """Return the weights `b` of MoChA, `(..., Tv)`.

    Each weight `a_k` is divided among the positions of the chunk that ends at `k`, by a softmax of
    `u` over the chunk.

    Args:
        scores: `u`, `(..., Tv)`.
        stops: `a`, `(..., Tv)`.
        size: number of positions of a chunk. Chunks at the start of the memory have fewer.
        mask: boolean, broadcasts to the scores; False positions get weight 0.
    """
    allowed = both(ops.ones_like(scores, dtype="bool"), mask)

    def chunks(x: Tensor) -> Tensor:
        """Return `(..., Tv, w)`: at position k the values of k-w+1 … k."""
        padded = _pad(x, size - 1, 0)
        return ops.stack([padded[..., o : o - size + 1 or None] for o in range(size)], axis=-1)

    inside = ops.cast(chunks(ops.cast(allowed, "int32")), "bool")
    shares = distributions.softmax(chunks(scores), inside)
    parts = shares * ops.expand_dims(stops, -1)
    # Part o of the chunk that ends at k belongs to position k - (size - 1 - o). So shift each part
    # to the left by size - 1 - o, and add the parts. The axis is not given as -1, which an ONNX
    # export does not accept here.
    padded = _pad(ops.moveaxis(parts, len(parts.shape) - 1, 0), 0, size - 1)
    shifted = [padded[o][..., size - 1 - o : -o or None] for o in range(size)]
    return sum(shifted[1:], shifted[0])


def _pad(x: Tensor, before: int, after: int) -> Tensor:
    return ops.pad(x, [[0, 0]] * (len(x.shape) - 1) + [[before, after]])
