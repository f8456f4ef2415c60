"""Additive attention that looks at its own past: location-sensitive attention and coverage."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_attention import distributions
from keras_attention.additive import AdditiveAttention
from keras_attention.attention import Memory, Tensor
from keras_attention.fast.backend import project


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
        batch, length = ops.shape(memory.value)[:2]
        features = self.features(ops.cast(state, self.compute_dtype))
        features = ops.reshape(features, (batch, -1, length, self.units))
        keys = ops.reshape(ops.expand_dims(memory.key, 1) + features, (-1, length, self.units))
        rows = ops.reshape(query, (-1, 1, self.units))
        return ops.reshape(self.score(rows, keys), (batch, ops.shape(query)[1], length))

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
        new = ops.reshape(weights, (-1, ops.shape(memory.value)[1]))
        return weights, state + new if self.cumulative else new


@keras.saving.register_keras_serializable("keras_attention")
class LocationSensitiveAttention(HistoryAttention):
    """Attention that sees where it was: `vᵀ tanh(W s + U h_j + V f_j + b)`, `f = F * a'`.

    Chorowski et al. 2015 (arXiv 1506.07503, section 2.2). `F` is a convolution along the memory of
    the last weights `a'`, or of the sum of all so far with `cumulative` (Shen et al. 2018, Tacotron
    2, arXiv 1712.05884). *Smoothing* (section 2.3) is `distribution="smoothing"`, *sharpening* a
    factor for the scores.

    Args:
        units: width of the hidden layer.
        filters: number of filters of `F`.
        kernel_size: width of the filters.
        cumulative: whether `F` sees the sum of all weights so far.
        sharpening: factor for the scores, above 1 for sharper weights.
        use_bias: whether `b` is added.
        normalize: whether `v` is weight-normalised, see `AdditiveAttention`.
        **kwargs: `kernel_initializer`, `kernel_regularizer`, `kernel_constraint` of all kernels and
            `v`; `distribution`, `dropout`, `seed`, see `Attention`; `name`, `dtype`.

    Weights: those of `AdditiveAttention`, `location_filter` `(kernel_size, 1, filters)` and
    `location_kernel` `(filters, units)`.

    Call arguments and output are those of `keras_attention.Attention`.

    Example:
        ```python
        query, value = keras.random.normal((2, 3, 5)), keras.random.normal((2, 7, 6))
        layer = LocationSensitiveAttention(8, filters=4, kernel_size=3)
        context = layer(query, value)  # (2, 3, 6)
        ```
    """

    def __init__(
        self,
        units: int,
        filters: int = 32,
        kernel_size: int = 31,
        cumulative: bool = False,
        sharpening: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(units, **kwargs)
        self._expect_count("filters", filters)
        self._expect_count("kernel_size", kernel_size)
        self._expect(sharpening > 0, "sharpening > 0", f"sharpening={sharpening}")
        self.filters = filters
        self.kernel_size = kernel_size
        self.cumulative = cumulative
        self.sharpening = sharpening

    def build_score(self, query_dim: int, key_dim: int) -> None:
        """Make the weights of additive attention, the filters and their projection."""
        super().build_score(query_dim, key_dim)
        self.location_filter = self.add_kernel(
            (self.kernel_size, 1, self.filters), "location_filter"
        )
        self.location_kernel = self.add_kernel((self.filters, self.units), "location_kernel")

    def features(self, history: Tensor) -> Tensor:
        """Return `V (F * a')`."""
        filters = ops.cast(self.location_filter, self.compute_dtype)
        located = ops.conv(
            ops.expand_dims(history, -1), filters, padding="same", data_format="channels_last"
        )
        return project(located, ops.cast(self.location_kernel, self.compute_dtype))

    def history_scores(self, query: Tensor, memory: Memory, state: Tensor) -> Tensor:
        """Return the sharpened scores."""
        return self.sharpening * super().history_scores(query, memory, state)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "filters": self.filters,
            "kernel_size": self.kernel_size,
            "cumulative": self.cumulative,
            "sharpening": self.sharpening,
        }


@keras.saving.register_keras_serializable("keras_attention")
class CoverageAttention(HistoryAttention):
    """Attention that knows what it has covered: `vᵀ tanh(W s + U h_j + w_c c_j + b)`.

    See, Liu and Manning 2017 (arXiv 1704.04368, eq. 11), after Tu et al. 2016 (arXiv 1601.04811).
    The coverage `c` is the sum of the weights of all queries before (eq. 10). The paper trains it
    with the loss of eq. 12, `keras_attention.losses.coverage` of the returned weights.

    Args:
        units: width of the hidden layer.
        use_bias: whether `b` is added.
        normalize: whether `v` is weight-normalised, see `AdditiveAttention`.
        **kwargs: `kernel_initializer`, `kernel_regularizer`, `kernel_constraint` of all kernels,
            `w_c` and `v`; `distribution`, `dropout`, `seed`, see `Attention`; `name`, `dtype`.

    Weights: those of `AdditiveAttention` and `coverage_kernel` `w_c` `(units,)`.

    Call arguments and output are those of `keras_attention.Attention`.

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
