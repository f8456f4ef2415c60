"""Additive attention, and its score."""

from __future__ import annotations

from typing import Any

import keras
from keras import KerasTensor, ops

from keras_attention import backend
from keras_attention._attention import Attention
from keras_attention.layer import keeps
from keras_attention.shapes import Tensor


def additive_score(query: Tensor, key: Tensor, scale: Tensor) -> Tensor:
    """Additive score `vᵀ tanh(q + k)` on projected inputs (Bahdanau et al. 2014, arXiv 1409.0473).

    With `q = W s` and `k = U h` this is the alignment model of the paper's appendix A.1.2.

    Half-precision inputs are computed in float32. Large scores of known lengths are computed
    without the formula's tensor `(B, Tq, Tv, units)`: see
    `keras_attention.backend._generic.additive`.

    Args:
        query: projected queries, float `(B, Tq, units)`; B may be 1.
        key: projected keys, `(B, Tv, units)`; B may be 1.
        scale: `v`, `(units,)`.

    Returns:
        The scores `(B, Tq, Tv)`, in the dtype of the queries.

    Raises:
        ValueError: if the batch sizes differ and neither is 1.
    """
    sizes = query.shape[0], key.shape[0]
    if not (sizes[0] == sizes[1] or None in sizes or 1 in sizes):
        raise ValueError(
            "scores.additive expected queries and keys of one batch size, or of 1. "
            f"Received: query {tuple(query.shape)}, key {tuple(key.shape)}"
        )
    dtype, scores = keras.backend.standardize_dtype(query.dtype), None
    if KerasTensor not in (type(query), type(key), type(scale)):
        wide = "float32" if dtype in ("float16", "bfloat16") else dtype
        query, key, scale = ops.cast(query, wide), ops.cast(key, wide), ops.cast(scale, wide)
        settings = backend.settings.get()
        if settings.fast and not settings.exporting:  # an export must not need XLA
            scores = backend.additive(query, key, scale, settings.training)
    if scores is None:
        hidden = ops.tanh(ops.expand_dims(query, 2) + ops.expand_dims(key, 1))
        scores = backend.project(hidden, scale)  # (B, Tq, Tv, units) to (B, Tq, Tv)
    return ops.cast(scores, dtype)


@keras.saving.register_keras_serializable("keras_attention")
class AdditiveAttention(Attention):
    """Additive attention with its two projections: `vᵀ tanh(W q + U k)`.

    Bahdanau, Cho and Bengio 2014 (arXiv 1409.0473, appendix A.1.2). Luong's *concat* score
    `vᵀ tanh(W [q; k])` is the same function with `W` split in two.

    With `normalize=True` the scale vector is weight-normalised and a bias is added inside the tanh
    (Salimans and Kingma 2016, arXiv 1602.07868): `g · (v/‖v‖)ᵀ tanh(W q + U k + b)`, with
    `g = sqrt(1/units)` and `b = 0` at the start.

    With several heads, the units are split among the heads. Each head's part of `v` is normalised
    separately, and `g = sqrt(heads/units)` at the start.

    Args:
        units: width of the hidden layer, of all heads together.
        use_bias: whether a bias is added inside the tanh; by default, the value of `normalize`.
        normalize: whether the scale vector is weight-normalised.
        num_heads: number of heads, a divisor of `units`.
        **kwargs: arguments of `Attention`, which also describes the call and the output.

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
        """Return `W q`, `(B, [heads,] n, ·)`."""
        kernel = ops.cast(self.query_kernel, self.compute_dtype)
        return self.split_heads(backend.project(query, kernel))

    def keys(self, key: Tensor, mask: Tensor | None) -> Tensor:
        """Return `U k`, `(B, [heads,] Tv, ·)`, plus the bias if any, in the dtype of scores."""
        key = ops.matmul(key, ops.cast(self.key_kernel, self.compute_dtype))
        if self.bias is not None:
            key = key + ops.cast(self.bias, self.compute_dtype)
        return self.split_heads(ops.cast(key, self.wide_dtype))

    def linear_query(self) -> keras.Variable | None:
        """Return the kernel by which `step` multiplies the query before `attend`, or None."""
        plain = keeps(self.queries, AdditiveAttention.queries) and keeps(self.step, Attention.step)
        return self.query_kernel if plain and self.num_heads == 1 else None

    def linear_key(self) -> tuple[keras.Variable, keras.Variable | None] | None:
        """Return kernel and bias (or None) if the keys are `k kernel + bias`, otherwise None."""
        plain = keeps(self.keys, AdditiveAttention.keys) and keeps(self.prepare, Attention.prepare)
        return (self.key_kernel, self.bias) if plain and self.num_heads == 1 else None

    def compute_scores(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the additive scores of projected queries and keys."""
        scale = ops.cast(self.scale, self.compute_dtype)
        if self.normalize:
            # (units,) to (heads, units / heads): each head's part is normalised separately.
            wide = ops.reshape(ops.cast(self.scale, self.wide_dtype), (self.num_heads, -1))
            length = ops.sqrt(ops.sum(ops.square(wide), axis=-1, keepdims=True))
            wide = ops.cast(self.gain, self.wide_dtype) * wide / length
            scale = ops.cast(ops.reshape(wide, (-1,)), self.compute_dtype)
        if self.num_heads == 1:
            return additive_score(query, key, scale)
        of_heads = enumerate(ops.split(scale, self.num_heads))
        return ops.stack([additive_score(query[:, h], key[:, h], v) for h, v in of_heads], axis=1)
