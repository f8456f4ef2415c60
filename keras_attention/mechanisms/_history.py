"""Additive attention that reads its earlier weights: location-sensitive attention and coverage."""

from __future__ import annotations

from typing import Any

import keras
from keras import KerasTensor, ops

from keras_attention._attention import Memory, Noise
from keras_attention.backend import project
from keras_attention.layer import keeps
from keras_attention.mechanisms._additive import AdditiveAttention
from keras_attention.shapes import Tensor


class HistoryAttention(AdditiveAttention):
    """Base class: `vᵀ tanh(W q + U k_j + f_j + b)`, with features `f` of the earlier weights.

    A subclass computes `f` in `features`. The state is the history, float32 `(B, Tv)`: the last
    weights, or, if `cumulative`, the sum of all earlier weights. Before the first query, it is 0.
    """

    sequential = True
    cumulative = True

    def __init__(self, units: int, use_bias: bool | None = True, **kwargs: Any) -> None:
        super().__init__(units, use_bias=use_bias, **kwargs)
        self._expect(self.num_heads == 1, "num_heads=1", num_heads=self.num_heads)

    def features(self, history: Tensor) -> Tensor:
        """Return the features `f` `(rows, Tv, units)` for a history `(rows, Tv)`."""
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
        """Attend to the memory with the features added to its keys; see `Attention.attend`."""
        (batch, length), count = ops.shape(memory.value)[:2], ops.shape(query)[1]
        features = self.features(ops.cast(state, self.compute_dtype))
        features = ops.reshape(features, (batch, count, length, self.units))
        # (B, 1, Tv, units) + (B, n, Tv, units): each query has keys of its own.
        keys = ops.expand_dims(memory.key, 1) + ops.cast(features, memory.key.dtype)
        return super().attend(query, memory._replace(key=keys), state, mask, noise)

    def averages(self) -> bool:
        """Return whether a context is exactly the average of the memory's values by the weights."""
        own = keeps(self.attend, HistoryAttention.attend)
        return own and keeps(self.average, HistoryAttention.average)

    def compute_scores(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the scores `(B, n, Tv)` of queries `(B, n, ·)`, each with keys `(B, n, Tv, ·)`."""
        batch, count, length, units = ops.shape(key)
        query = ops.reshape(query, (batch * count, 1, units))
        key = ops.reshape(key, (batch * count, length, units))
        return ops.reshape(super().compute_scores(query, key), (batch, count, length))

    def weigh(
        self, scores: Any, query: Any, memory: Memory, state: Any, mask: Tensor | None, noise: Noise
    ) -> tuple[Tensor, Any]:
        """Return the weights and the next history: see `Attention.weigh`."""
        scores = ops.cast(scores, self.wide_dtype)
        weights, _ = super().weigh(scores, query, memory, state, mask, noise)
        new = ops.reshape(weights, ops.shape(state))
        return weights, state + new if self.cumulative else new


@keras.saving.register_keras_serializable("keras_attention")
class CoverageAttention(HistoryAttention):
    """Additive attention with coverage: `vᵀ tanh(W s + U h_j + w_c c_j + b)`.

    See, Liu and Manning 2017 (arXiv 1704.04368, eq. 11), after Tu et al. 2016 (arXiv 1601.04811).
    The coverage `c` is the sum of the weights of all earlier queries (eq. 10). The paper also
    trains with the loss of eq. 12: `keras_attention.losses.coverage` of the returned weights.

    Args:
        units: width of the hidden layer.
        use_bias: whether `b` is added.
        normalize: whether `v` is weight-normalised, see `AdditiveAttention`.
        **kwargs: arguments of `Attention`, which also describes the call and the output.

    Weights: those of `AdditiveAttention` and `coverage_kernel` `w_c` `(units,)`.

    Example:
        ```python
        query, value = keras.random.normal((2, 3, 5)), keras.random.normal((2, 7, 6))
        context, weights = CoverageAttention(8)(query, value, return_attention_scores=True)
        covered = keras.ops.cumsum(weights, axis=1)  # (2, 3, 7)
        ```
    """

    def build_score(self, query_dim: int, key_dim: int) -> None:
        """Make the weights of additive attention and `w_c`."""
        super().build_score(query_dim, key_dim)
        self.coverage_kernel = self.add_kernel((self.units,), "coverage_kernel")

    def features(self, history: Tensor) -> Tensor:
        """Return `w_c c`."""
        kernel = ops.cast(self.coverage_kernel, self.compute_dtype)
        return ops.expand_dims(history, -1) * kernel


@keras.saving.register_keras_serializable("keras_attention")
class LocationSensitiveAttention(HistoryAttention):
    """Additive attention with its last weights: `vᵀ tanh(W s + U h_j + V f_j + b)`, `f = F * a'`.

    Chorowski et al. 2015 (arXiv 1506.07503, section 2.2). `F` is a convolution along the positions
    of the memory. Its input is the last weights `a'` or, with `cumulative`, the sum of all earlier
    weights (Shen et al. 2018, Tacotron 2, arXiv 1712.05884). For *sharpening* and *smoothing*
    (section 2.3), pass a function as `distribution`.

    Args:
        units: width of the hidden layer.
        filters: number of filters of `F`.
        kernel_size: width of the filters.
        cumulative: whether the input of `F` is the sum of all earlier weights.
        use_bias: whether `b` is added.
        normalize: whether `v` is weight-normalised, see `AdditiveAttention`.
        **kwargs: arguments of `Attention`, which also describes the call and the output.

    Weights: those of `AdditiveAttention`, `location_filter` `(kernel_size, 1, filters)` and
    `location_kernel` `(filters, units)`.
    """

    def __init__(
        self,
        units: int,
        filters: int = 32,
        kernel_size: int = 31,
        cumulative: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(units, **kwargs)
        self._expect_count("filters", filters)
        self._expect_count("kernel_size", kernel_size)
        self.filters = filters
        self.kernel_size = kernel_size
        self.cumulative = cumulative

    def build_score(self, query_dim: int, key_dim: int) -> None:
        """Make the weights of additive attention, the filters and their projection."""
        super().build_score(query_dim, key_dim)
        shape = (self.kernel_size, 1, self.filters)
        self.location_filter = self.add_kernel(shape, "location_filter")
        self.location_kernel = self.add_kernel((self.filters, self.units), "location_kernel")

    def features(self, history: Tensor) -> Tensor:
        """Return `V (F * a')`."""
        filters = ops.cast(self.location_filter, self.compute_dtype)
        located = ops.expand_dims(history, -1)
        located = ops.conv(located, filters, padding="same", data_format="channels_last")
        return project(located, ops.cast(self.location_kernel, self.compute_dtype))
