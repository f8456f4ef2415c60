"""Monotonic attention and monotonic chunkwise attention."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_attention import distributions
from keras_attention.attention import Attention, Tensor
from keras_attention.borrowed import BorrowedScore
from keras_attention.weighing import Memory


@keras.saving.register_keras_serializable("keras_attention")
class MonotonicAttention(BorrowedScore):
    """Attention that only moves forward (Raffel et al. 2017, arXiv 1704.00784).

    From where it was it goes on to the right, and stops at position `j` with the probability
    `p_j = sigmoid(e_j + r)`; its weights are the probabilities to have stopped there, see
    `keras_attention.distributions.monotonic`. They need not sum to 1.

    Trained in a soft mode with `noise`, which drives the probabilities towards 0 and 1, it can then
    attend by `"hard"` choices, which have no gradient: that mode itself is soft, `"parallel"`, in
    training. The paper's score is the weight-normalised additive one, and a negative `r`.

    Args:
        attention: an attention layer of this library with one head, of which the score is used.
        mode: `"parallel"`, `"recursive"` (the same, position by position) or `"hard"`, which is
            `"parallel"` in training.
        noise: standard deviation of the normal noise that is added to the scores in training.
        bias_initial: `r` at the start.
        **kwargs: `dropout`, `seed`, see `Attention`; `name`, `dtype`.

    Weights: those of the score and `score_bias` `r`, `()`.

    Call arguments and output are those of `keras_attention.Attention`.

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
        modes = distributions.MODES
        self._expect(mode in modes, f"mode to be one of {', '.join(modes)}", f"mode={mode!r}")
        self._expect(noise >= 0, "noise >= 0", f"noise={noise}")
        self._expect(self.num_heads == 1, "a score of one head", f"num_heads={self.num_heads}")
        self._expect(
            self.distribution == "softmax",
            "no distribution: a mode takes its place",
            f"distribution={self.distribution!r}",
        )
        self.mode = mode
        self.noise_deviation = noise
        self.bias_initial = bias_initial
        if noise and self.seed_generator is None:
            self.seed_generator = keras.random.SeedGenerator(self.seed)

    def build_score(self, query_dim: int, key_dim: int) -> None:
        """Make the bias of the score."""
        initializer = keras.initializers.Constant(self.bias_initial)
        self.score_bias = self.add_weight((), initializer, name="score_bias")

    def noise(self, shape: tuple[Any, ...], training: bool | None) -> dict[str, Tensor]:
        """Draw what the contract says, and `"score"`, to be added to the scores in training."""
        drawn = super().noise(shape, training)
        if training and self.noise_deviation:
            drawn["score"] = keras.random.normal(
                shape, stddev=self.noise_deviation, dtype=self.wide_dtype, seed=self.seed_generator
            )
        elif training and self.mode == "hard":
            drawn["score"] = ops.zeros(shape, self.wide_dtype)
        return drawn

    def initial_state(self, memory: Memory) -> Tensor:
        """Return the weights before the first query: 1 at position 0, float32 `(B, Tv)`."""
        batch, length = ops.shape(memory.value)[:2]
        first = ops.cast(ops.arange(length) == 0, self.wide_dtype)
        return ops.broadcast_to(ops.expand_dims(first, 0), (batch, length))

    def weigh(
        self,
        query: Tensor,
        memory: Memory,
        state: Tensor,
        mask: Tensor | None,
        noise: dict[str, Tensor],
    ) -> tuple[Tensor, Tensor]:
        """Return the weights, which are the next state; arguments as the contract says."""
        scores = ops.cast(self.score(query, memory.key), self.wide_dtype)
        scores, mode = scores + ops.cast(self.score_bias, self.wide_dtype), self.mode
        if "score" in noise:  # in training alone
            scores, mode = scores + noise["score"], "parallel" if mode == "hard" else mode
        previous = ops.reshape(state, ops.shape(scores))  # (B, n, Tv)
        weights = distributions.monotonic(scores, previous, mask, mode)
        return weights, ops.reshape(weights, ops.shape(state))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        config = super().get_config()
        config.pop("distribution")
        return {
            **config,
            "mode": self.mode,
            "noise": self.noise_deviation,
            "bias_initial": self.bias_initial,
        }


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
        **kwargs: `dropout`, `seed`, see `Attention`; `name`, `dtype`.

    Weights: those of `MonotonicAttention` and of `chunk_attention`.

    Call arguments and output are those of `keras_attention.Attention`. The state is `a`.

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
            isinstance(chunk_attention, Attention)
            and type(chunk_attention).weigh is Attention.weigh
            and chunk_attention.num_heads == 1,
            "a chunk_attention with nothing but a score of one head",
            repr(chunk_attention),
        )
        self._expect(
            chunk_attention is not attention, "two attention layers", "the same layer twice"
        )
        self._expect_count("chunk_size", chunk_size)
        self.chunk_attention = chunk_attention
        self.chunk_size = chunk_size

    def build(
        self,
        query_shape: tuple[Any, ...],
        value_shape: tuple[Any, ...],
        key_shape: tuple[Any, ...] | None = None,
    ) -> None:
        """Make the weights of both inner layers, then those of this one."""
        if not self.chunk_attention.built:
            self.chunk_attention.build(query_shape, value_shape, key_shape)
        super().build(query_shape, value_shape, key_shape)

    def project_query(self, query: Tensor) -> dict[str, Tensor]:
        """Return what both inner layers make of the queries."""
        chunk = ops.cast(query, self.chunk_attention.compute_dtype)
        chunk = self.chunk_attention.project_query(chunk)
        return {"stop": super().project_query(query), "chunk": chunk}

    def keys(self, key: Tensor, mask: Tensor | None) -> dict[str, Tensor]:
        """Return what both inner layers make of keys and mask."""
        chunk = ops.cast(key, self.chunk_attention.compute_dtype)
        return {"stop": super().keys(key, mask), "chunk": self.chunk_attention.keys(chunk, mask)}

    def weigh(
        self,
        query: dict[str, Tensor],
        memory: Memory,
        state: Tensor,
        mask: Tensor | None,
        noise: dict[str, Tensor],
    ) -> tuple[Tensor, Tensor]:
        """Return `b`, and `a` as the next state; arguments as the contract says."""
        stop_memory = memory._replace(key=memory.key["stop"])
        stops, state = super().weigh(query["stop"], stop_memory, state, mask, noise)
        scores = self.chunk_attention.score(query["chunk"], memory.key["chunk"])
        return chunkwise(ops.cast(scores, self.wide_dtype), stops, self.chunk_size, mask), state

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "chunk_attention": keras.saving.serialize_keras_object(self.chunk_attention),
            "chunk_size": self.chunk_size,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> MonotonicChunkwiseAttention:
        """Rebuild the layer."""
        chunk = keras.saving.deserialize_keras_object(config["chunk_attention"])
        return super().from_config({**config, "chunk_attention": chunk})


def chunkwise(scores: Tensor, stops: Tensor, size: int, mask: Tensor | None = None) -> Tensor:
    """Spread the weight of each position over the chunk that ends there (MoChA).

    Args:
        scores: `u`, float32 `(..., Tv)`.
        stops: `a`, float32 `(..., Tv)`.
        size: `w`, number of positions of a chunk; fewer at the start of the memory.
        mask: boolean, broadcasts to the scores; what is False gets weight 0.

    Returns:
        Weights `(..., Tv)`.
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
