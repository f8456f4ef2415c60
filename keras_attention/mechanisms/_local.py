"""Attention by position: local attention to a window, and location attention."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attention._attention import Attention, Memory, Noise
from keras_attention.backend import gather_in_rows, project
from keras_attention.mechanisms._borrowed import BorrowedScore
from keras_attention.shapes import Tensor, both, first_place


@keras.saving.register_keras_serializable("keras_attention")
class LocalAttention(BorrowedScore):
    """Attention to a window `[p_t - D, p_t + D]`.

    Luong et al. 2015 (arXiv 1508.04025, section 3.2):

    - *local-m* (monotonic): `p_t = t`, the number of queries before this one.
    - *local-p* (`predictive=True`): `p_t = S · sigmoid(v_pᵀ tanh(W_p h_t))` (eq. 9), where `S` is
      the number of valid positions, and the weights within the window are multiplied by
      `exp(-(s - p_t)² / (2σ²))` with `σ = D/2` (eq. 10); they then sum to less than 1.

    Positions are counted from the first position that the memory's mask allows, so that padding on
    the left changes nothing. If a window is beyond the memory, all weights are 0.

    Args:
        attention: an attention layer of this library, whose score is used.
        half_width: `D`; the paper takes 10.
        predictive: whether the position is predicted (local-p).
        units: width of `W_p`; by default, the width of the query.
        **kwargs: arguments of `Attention`, which also describes the call and the output.

    Weights: those of the score; for local-p `position_kernel` `(dq, units)` and `position_scale`
    `(units,)`.

    Example:
        ```python
        query, value = keras.random.normal((2, 3, 5)), keras.random.normal((2, 30, 6))
        layer = LocalAttention(MultiplicativeAttention("general"), half_width=4, predictive=True)
        context = layer(query, value)  # (2, 3, 6)
        ```
    """

    def __init__(
        self,
        attention: Attention,
        half_width: int = 10,
        predictive: bool = False,
        units: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(attention, **kwargs)
        self._expect_number("half_width", half_width, 1)
        self._expect_count("units", units, or_none=True)
        expected = "units with predictive=True alone, which has the kernel W_p"
        self._expect(predictive or units is None, expected, units=units)
        self.half_width = half_width
        self.predictive = predictive
        self.units = units

    def build_score(self, query_dim: int, key_dim: int) -> None:
        """Make the weights that predict the position."""
        if not self.predictive:
            return
        units = self.units or query_dim
        self.position_kernel = self.add_kernel((query_dim, units), "position_kernel")
        self.position_scale = self.add_kernel((units,), "position_scale")

    def queries(self, query: Tensor) -> dict[str, Tensor]:
        """Return the projected queries and, for local-p, `p_t / S` as `position` `(B, Tq, 1)`."""
        result = {"query": super().queries(query)}
        if self.predictive:
            kernel = ops.cast(self.position_kernel, self.compute_dtype)
            scale = ops.cast(self.position_scale, self.wide_dtype)
            hidden = ops.cast(ops.tanh(project(query, kernel)), self.wide_dtype)
            result["position"] = ops.expand_dims(ops.sigmoid(project(hidden, scale)), -1)
        return result

    def state_spec(self, batch: int | None, length: int | None) -> Any:
        """Return, for local-m, the shape and dtype of the number of queries so far."""
        return () if self.predictive else keras.KerasTensor((batch, 1), "int32")

    def initial_state(self, memory: Memory) -> Any:
        """Return, for local-m, the number of queries so far: `t`, int32 `(B, 1)`."""
        self.expect_memory(memory)
        return () if self.predictive else ops.zeros((ops.shape(memory.value)[0], 1), "int32")

    def states_of_all_queries(
        self, state: Any, query_mask: Tensor | None, batch: Any, length: Any
    ) -> tuple[Any, Any]:
        """Return, for local-m, the number of valid queries before each query, and after the last.

        See `Attention.states_of_all_queries`.
        """
        if self.predictive:
            return state, state
        valid = ops.ones((batch, length), "int32")
        if query_mask is not None:
            valid = ops.cast(query_mask, "int32")
        before = state + ops.cumsum(valid, axis=1) - valid  # (B, Tq)
        return ops.reshape(before, (-1, 1)), state + ops.sum(valid, axis=1, keepdims=True)

    def compute_scores(self, query: dict[str, Tensor], key: Any) -> Tensor:
        """Return the scores of the inner layer."""
        return super().compute_scores(query["query"], key)

    def weigh(
        self, scores: Any, query: Any, memory: Memory, state: Any, mask: Tensor | None, noise: Noise
    ) -> tuple[Tensor, Any]:
        """Return the weights within the window: see `Attention.weigh`."""
        length = ops.shape(memory.value)[-2]
        places = ops.cast(ops.arange(length), self.wide_dtype)
        if memory.mask is not None:
            places = places - ops.cast(first_place(memory.mask), self.wide_dtype)  # (B, 1, Tv)
        if self.predictive:
            size = ops.cast(length, self.wide_dtype)
            if memory.mask is not None:
                valid = ops.sum(ops.cast(memory.mask, self.wide_dtype), axis=1)
                size = ops.reshape(valid, (-1, 1, 1))
            center = size * query["position"]
        else:
            center = ops.cast(state, self.wide_dtype)
            rows = ops.shape(memory.value)[0], ops.shape(query["query"])[-2]
            center = ops.reshape(center, (*rows, 1))
            state = state + 1
        distance = places - center  # (B, n, Tv)
        if self.num_heads > 1:
            distance = ops.expand_dims(distance, 1)
        mask = both(mask, ops.abs(distance) <= self.half_width)
        weights, _ = super().weigh(scores, query, memory, (), mask, noise)
        if self.predictive:
            deviation = self.half_width / 2
            near = ops.exp(ops.square(distance) / (-2 * deviation**2))
            weights = ops.cast(weights, self.wide_dtype) * near
        return weights, state


@keras.saving.register_keras_serializable("keras_attention")
class LocationAttention(Attention):
    """Attention to positions only, independent of the memory's content: `softmax(W q)`.

    The *location* score of Luong et al. 2015 (arXiv 1508.04025, section 3.1). Positions are counted
    from the first position that the memory's mask allows, so that padding on the left changes
    nothing.

    Args:
        max_length: the greatest length `Tv` of a memory.
        **kwargs: arguments of `Attention`, which also describes the call and the output.

    Weights: `kernel` `(dq, max_length)`.

    Raises:
        ValueError: if a memory is longer than `max_length`. If the length is unknown, the weights
            are NaN under XLA, and TensorFlow without XLA raises an error of its own.
    """

    def __init__(self, max_length: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._expect_count("max_length", max_length)
        self._expect(self.num_heads == 1, "num_heads=1", num_heads=self.num_heads)
        self.max_length = max_length

    def build_score(self, query_dim: int, key_dim: int) -> None:
        """Make the kernel."""
        self.kernel = self.add_kernel((query_dim, self.max_length), "kernel")

    def keys(self, key: Tensor, mask: Tensor | None) -> Tensor:
        """Return the positions, int32 `(B, Tv)`, counted from the first that the mask allows.

        Positions before the first are 0.
        """
        batch, length = ops.shape(key)[:2]
        places = ops.broadcast_to(ops.arange(length, dtype="int32"), (batch, length))
        return places if mask is None else ops.relu(places - first_place(mask)[:, 0])

    def compute_scores(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the scores `(B, n, Tv)` of the memory's positions."""
        length = key.shape[1]
        valid = not isinstance(length, int) or length <= self.max_length
        expected = f"a memory of at most max_length={self.max_length} positions"
        self._expect(valid, expected, f"{length} positions")
        kernel = ops.cast(self.kernel, self.compute_dtype)
        by_place = ops.swapaxes(project(query, kernel), 1, 2)  # (B, max_length, n)
        scores = ops.swapaxes(gather_in_rows(by_place, key), 1, 2)  # (B, n, Tv)
        if isinstance(length, int):
            return scores
        # Under XLA or on a GPU, a gather past the end returns the value of another position.
        return ops.where(ops.expand_dims(key, 1) < self.max_length, scores, np.nan)
