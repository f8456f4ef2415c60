"""Location-sensitive attention."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_attention.attention import Tensor
from keras_attention.backend import project
from keras_attention.mechanisms.history import HistoryAttention


@keras.saving.register_keras_serializable("keras_attention")
class LocationSensitiveAttention(HistoryAttention):
    """Additive attention to its last weights: `vᵀ tanh(W s + U h_j + V f_j + b)`, `f = F * a'`.

    Chorowski et al. 2015 (arXiv 1506.07503, section 2.2). `F` is a convolution along the memory of
    the last weights `a'`, or of the sum of all so far with `cumulative` (Shen et al. 2018, Tacotron
    2, arXiv 1712.05884). *Sharpening* (section 2.3) is a factor for the scores; *smoothing* is a
    function as `distribution`.

    Args:
        units: width of the hidden layer.
        filters: number of filters of `F`.
        kernel_size: width of the filters.
        cumulative: whether `F` sees the sum of all weights so far.
        sharpening: factor for the scores, above 1 for sharper weights.
        use_bias: whether `b` is added.
        normalize: whether `v` is weight-normalised, see `AdditiveAttention`.
        **kwargs: see `Attention`, as call arguments and output.

    Weights: those of `AdditiveAttention`, `location_filter` `(kernel_size, 1, filters)` and
    `location_kernel` `(filters, units)`.
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
        located = ops.expand_dims(history, -1)
        located = ops.conv(located, filters, padding="same", data_format="channels_last")
        return project(located, ops.cast(self.location_kernel, self.compute_dtype))

    def compute_scores(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the sharpened scores."""
        return self.sharpening * super().compute_scores(query, key)
