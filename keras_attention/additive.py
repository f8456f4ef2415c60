"""Additive attention."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_attention import scores
from keras_attention.attention import Attention, Tensor


@keras.saving.register_keras_serializable("keras_attention")
class AdditiveAttention(Attention):
    """Additive attention with its two projections: `vᵀ tanh(W q + U k)`.

    Bahdanau, Cho and Bengio 2014 (arXiv 1409.0473, appendix A.1.2). Luong's *concat* score
    `vᵀ tanh(W [q; k])` is the same function with `W` split in two.

    With `normalize=True` the scale vector is weight-normalised, `g · v / ‖v‖`, and a bias is added
    inside the tanh (Salimans and Kingma 2016, arXiv 1602.07868): `g · (v/‖v‖)ᵀ tanh(W q + U k + b)`
    with `g = sqrt(1/units)` and `b = 0` at the start.

    Args:
        units: width of the hidden layer.
        use_bias: whether a bias is added inside the tanh; by default only if `normalize`.
        normalize: whether the scale vector is weight-normalised.
        kernel_initializer: initializer of `W`, `U` and `v`.
        dropout: fraction of the attention weights dropped in training.
        seed: integer seed of the dropout.

    Weights: `query_kernel` `(dq, units)`, `key_kernel` `(dk, units)`, `scale` `(units,)`; with bias
    `bias` `(units,)`; with `normalize` `gain` `()`.

    Call arguments and output are those of `keras_attention.attention.Attention`.
    """

    def __init__(
        self,
        units: int,
        use_bias: bool | None = None,
        normalize: bool = False,
        kernel_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if units < 1:
            raise ValueError(f"AdditiveAttention expected units >= 1. Received: units={units}")
        self.units = units
        self.normalize = normalize
        self.use_bias = normalize if use_bias is None else use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build_score(self, query_dim: int, key_dim: int) -> None:
        """Make the two kernels and the scale vector."""
        units, initializer = self.units, self.kernel_initializer
        self.query_kernel = self.add_weight((query_dim, units), initializer, name="query_kernel")
        self.key_kernel = self.add_weight((key_dim, units), initializer, name="key_kernel")
        self.scale = self.add_weight((units,), initializer, name="scale")
        self.bias = self.add_weight((units,), "zeros", name="bias") if self.use_bias else None
        gain = keras.initializers.Constant(units**-0.5)
        self.gain = self.add_weight((), gain, name="gain") if self.normalize else None

    def project_query(self, query: Tensor) -> Tensor:
        """Return `W q`."""
        return ops.matmul(query, ops.cast(self.query_kernel, self.compute_dtype))

    def project_key(self, key: Tensor) -> Tensor:
        """Return `U k`, with the bias where there is one."""
        key = ops.matmul(key, ops.cast(self.key_kernel, self.compute_dtype))
        return key if self.bias is None else key + ops.cast(self.bias, self.compute_dtype)

    def score(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the additive scores of projected queries and keys."""
        return scores.additive(query, key, ops.cast(self._effective_scale(), self.compute_dtype))

    def _effective_scale(self) -> Tensor:
        if not self.normalize:
            return self.scale
        scale = ops.cast(self.scale, "float32")
        return ops.cast(self.gain, "float32") * scale * ops.rsqrt(ops.sum(ops.square(scale)))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "units": self.units,
            "use_bias": self.use_bias,
            "normalize": self.normalize,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
