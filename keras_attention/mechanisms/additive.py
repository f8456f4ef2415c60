"""Additive attention."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_attention import scores
from keras_attention.attention import Attention, Tensor
from keras_attention.backend import project
from keras_attention.layer import keeps


@keras.saving.register_keras_serializable("keras_attention")
class AdditiveAttention(Attention):
    """Additive attention with its two projections: `vᵀ tanh(W q + U k)`.

    Bahdanau, Cho and Bengio 2014 (arXiv 1409.0473, appendix A.1.2). Luong's *concat* score
    `vᵀ tanh(W [q; k])` is the same function with `W` split in two.

    With `normalize=True` the scale vector is weight-normalised and a bias is added inside the tanh
    (Salimans and Kingma 2016, arXiv 1602.07868): `g · (v/‖v‖)ᵀ tanh(W q + U k + b)`, with
    `g = sqrt(1/units)` and `b = 0` at the start.

    Each of several heads has its part of the units, and its part of `v` is normalised by itself.

    Args:
        units: width of the hidden layer, of all heads together.
        use_bias: whether a bias is added inside the tanh; by default only if `normalize`.
        normalize: whether the scale vector is weight-normalised.
        num_heads: number of heads, a divisor of `units`.
        **kwargs: see `Attention`, as call arguments and output.

    Weights: `query_kernel` `(dq, units)`, `key_kernel` `(dk, units)`, `scale` `(units,)`; with bias
    `bias` `(units,)`; with `normalize` `gain` `()`.
    """

    def __init__(
        self, units: int, use_bias: bool | None = None, normalize: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self._expect_units(units)
        self.units = units
        self.normalize = normalize
        self.use_bias = normalize if use_bias is None else use_bias

    def build_score(self, query_dim: int, key_dim: int) -> None:
        """Make the two kernels and the scale vector."""
        units = self.units
        self.query_kernel = self.add_kernel((query_dim, units), "query_kernel")
        self.key_kernel = self.add_kernel((key_dim, units), "key_kernel")
        self.scale = self.add_kernel((units,), "scale")
        self.bias = self.add_weight((units,), "zeros", name="bias") if self.use_bias else None
        gain = keras.initializers.Constant((units // self.num_heads) ** -0.5)
        self.gain = self.add_weight((), gain, name="gain") if self.normalize else None

    def queries(self, query: Tensor) -> Tensor:
        """Return `W q`."""
        return self.split_heads(project(query, ops.cast(self.query_kernel, self.compute_dtype)))

    def keys(self, key: Tensor, mask: Tensor | None) -> Tensor:
        """Return `U k` with the bias, if any, in float32, the dtype of scores."""
        key = ops.matmul(key, ops.cast(self.key_kernel, self.compute_dtype))
        if self.bias is not None:
            key = key + ops.cast(self.bias, self.compute_dtype)
        return self.split_heads(ops.cast(key, self.wide_dtype))

    def linear_query(self) -> keras.Variable | None:
        """Return the kernel, if `step` does nothing but multiply the query before `attend`."""
        plain = keeps(self.queries, AdditiveAttention.queries) and keeps(self.step, Attention.step)
        return self.query_kernel if plain and self.num_heads == 1 else None

    def linear_key(self) -> tuple[keras.Variable, keras.Variable | None] | None:
        """Return the kernel and the bias that `prepare` makes the keys of, or None."""
        plain = keeps(self.keys, AdditiveAttention.keys) and keeps(self.prepare, Attention.prepare)
        return (self.key_kernel, self.bias) if plain and self.num_heads == 1 else None

    def compute_scores(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the additive scores of projected queries and keys."""
        scale = ops.cast(self.scale, self.compute_dtype)
        if self.normalize:
            wide = ops.reshape(ops.cast(self.scale, self.wide_dtype), (self.num_heads, -1))
            length = ops.sqrt(ops.sum(ops.square(wide), axis=-1, keepdims=True))
            wide = ops.cast(self.gain, self.wide_dtype) * wide / length
            scale = ops.cast(ops.reshape(wide, (-1,)), self.compute_dtype)
        if self.num_heads == 1:
            return scores.additive(query, key, scale)
        of_heads = enumerate(ops.split(scale, self.num_heads))
        return ops.stack([scores.additive(query[:, h], key[:, h], v) for h, v in of_heads], axis=1)
