"""Attention with coverage."""

from __future__ import annotations

import keras
from keras import ops

from keras_attention.attention import Tensor
from keras_attention.mechanisms.history import HistoryAttention


@keras.saving.register_keras_serializable("keras_attention")
class CoverageAttention(HistoryAttention):
    """Additive attention with coverage: `vᵀ tanh(W s + U h_j + w_c c_j + b)`.

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
