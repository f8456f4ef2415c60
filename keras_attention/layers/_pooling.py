"""Attention pooling: from a sequence to one vector."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_attention.layer import AveragingLayer
from keras_attention.shapes import Tensor, blank_where_masked, fits, flat_memory


@keras.saving.register_keras_serializable("keras_attention")
class AttentionPooling(AveragingLayer):
    """The average of a sequence with learned weights, `softmax(uᵀ tanh(W h + b))`.

    Yang et al. 2016, "Hierarchical Attention Networks for Document Classification", eq. 5 to 7:
    the learned vector `u` is the only query.

    With several heads, each head has its part of the hidden units and of `u`, and averages its part
    of the dimensions.

    Args:
        units: width of the hidden layer, of all heads together.
        num_heads: number of heads, a divisor of `units` and of the value's width.
        distribution: from scores to weights, see `Attention`.
        dropout: fraction of the attention weights dropped in training.
        seed: integer seed of the dropout.
        **kwargs: `kernel_initializer`, `kernel_regularizer`, `kernel_constraint` of `W` and `u`;
            `name`, `dtype`.

    Weights: `kernel` `(dk, units)`, `bias` `(units,)`, `scale` `u` `(units,)`.

    Call arguments:
        value: `(B, T, dim)`, or a grid `(B, H, W, dim)`.
        key: `(B, T, dk)`, or a grid: the `h` of the score; the value if not given.
        mask: boolean `(B, T)`, or `(B, H, W)` for a grid; False positions get weight 0, and may
            be NaN or infinite.
        return_attention_scores: whether to return the attention weights as well.
        training: whether dropout is applied.

    Output:
        The average `(B, dim)`. With `return_attention_scores`, a pair of the average and the
        weights before dropout, `(B, T)`, with several heads `(B, heads, T)`. Rows whose positions
        are all masked are 0.

    Raises:
        ValueError: if the shapes of value, key and mask do not fit.

    Example:
        ```python
        states = keras.random.normal((2, 7, 6))
        layer = AttentionPooling(8)
        summary, weights = layer(states, return_attention_scores=True)  # (2, 6), (2, 7)
        ```
    """

    def __init__(
        self,
        units: int,
        distribution: Any = "softmax",
        dropout: float = 0.0,
        seed: int | None = None,
        num_heads: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(distribution, num_heads, dropout, seed, **kwargs)
        self._expect_units(units)
        self.units = units

    def build(self, value_shape: tuple[Any, ...], key_shape: tuple[Any, ...] | None = None) -> None:
        """Make the weights for values and keys of these shapes."""
        self._check_shape(value_shape, key_shape)
        self._expect_divided("a value", value_shape)
        self.widths = value_shape[-1], (key_shape or value_shape)[-1]
        self.kernel = self.add_kernel((self.widths[1], self.units), "kernel")
        self.bias = self.add_weight((self.units,), "zeros", name="bias")
        self.scale = self.add_kernel((self.units,), "scale")

    def call(
        self,
        value: Tensor,
        mask: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        key: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return the average; the class documents the arguments and the output."""
        self._check_shape(value.shape, None if key is None else key.shape)
        # With two tensors, Keras passes no mask that the value carries.
        mask = getattr(value, "_keras_mask", None) if mask is None else mask
        mask = self._checked_mask("mask", mask, value.shape[:-1])
        value = flat_memory(ops.cast(value, self.compute_dtype))  # (B, T, dim)
        value = blank_where_masked(mask, value)  # a NaN would make the average and gradients NaN
        if key is None:
            key = value
        else:
            key = flat_memory(ops.cast(key, self.compute_dtype))  # (B, T, dk)
            key = blank_where_masked(mask, key)
        kernel, bias = ops.cast(self.kernel, value.dtype), ops.cast(self.bias, value.dtype)
        hidden = ops.tanh(ops.matmul(key, kernel) + bias)  # (B, T, units)
        terms = self.split_heads(hidden * ops.cast(self.scale, value.dtype))  # (B, [heads,] T, ·)
        scores = ops.expand_dims(ops.sum(terms, axis=-1), -2)  # (B, [heads,] 1, T)
        if mask is not None:  # (B, [1,] 1, T)
            mask = ops.expand_dims(mask, 1 if self.num_heads == 1 else (1, 2))
        weights = factors = self.distribute(scores, mask)
        if training and self.dropout:
            factors = weights * self.dropped(ops.shape(weights))
        pooled = ops.squeeze(self.average(factors, self.split_heads(value)), 1)
        return (pooled, ops.squeeze(weights, -2)) if return_attention_scores else pooled

    def _check_shape(self, value: tuple[Any, ...], key: tuple[Any, ...] | None) -> None:
        received = f"value {tuple(value)}" + ("" if key is None else f", key {tuple(key)}")
        key = value if key is None else key
        valid = len(value) in (3, 4) and 0 not in value[1:]
        expected = "a value (B, T, dim) or (B, H, W, dim) with a position at least"
        self._expect(valid, expected, received)
        valid = len(key) == len(value) and fits(key[:-1], value[:-1])
        self._expect(valid, "a key with the positions of the value", received)
        self._expect(None not in (value[-1], key[-1]), "a known last axis", received)
        width, key_width = getattr(self, "widths", (value[-1], key[-1]))
        expected = f"values of width {width} and keys of width {key_width}, as it was built"
        self._expect((value[-1], key[-1]) == (width, key_width), expected, received)

    # Keras.

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> None:
        """Return None: a vector has no positions."""

    def output_spec(self, value: Any, key: Any = None, **kwargs: Any) -> Any:
        """Return the symbolic vector, with the weights if `return_attention_scores`."""
        self._check_shape(value.shape, None if key is None else key.shape)
        pooled = keras.KerasTensor((value.shape[0], value.shape[-1]), self.compute_dtype)
        if not kwargs.get("return_attention_scores"):
            return pooled
        return pooled, self.weights_spec(value.shape[0], (), value.shape)
