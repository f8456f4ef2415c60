"""Attention pooling: from a sequence to one vector."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_attention import distributions
from keras_attention.shapes import check_mask, flat_length, flat_mask, flat_memory

Tensor = Any


@keras.saving.register_keras_serializable("keras_attention")
class AttentionPooling(keras.layers.Layer):
    """The average of a sequence, weighted by what matters: `softmax(uᵀ tanh(W h + b))`.

    Yang et al. 2016, "Hierarchical Attention Networks for Document Classification", eq. 5 to 7:
    the attention has no query but the learned vector `u`.

    Args:
        units: width of the hidden layer.
        distribution: what makes weights out of scores, see `Attention`.
        kernel_initializer: initializer of `W` and `u`.
        dropout: fraction of the attention weights dropped in training.
        seed: integer seed of the dropout.

    Weights: `kernel` `(dim, units)`, `bias` `(units,)`, `scale` `u` `(units,)`.

    Call arguments:
        value: `(B, T, dim)`, or a grid `(B, H, W, dim)`.
        mask: boolean `(B, T)`, or of the grid; what is False gets weight 0.
        return_attention_scores: whether to return the attention weights as well.
        training: whether dropout is applied.

    Output:
        `(B, dim)`; with `return_attention_scores` a pair of it and the weights, before dropout,
        `(B, T)`. Where all is masked both are 0.

    Raises:
        ValueError: if value or mask is of another shape.
    """

    def __init__(
        self,
        units: int,
        distribution: str = "softmax",
        kernel_initializer: Any = "glorot_uniform",
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if units < 1:
            raise ValueError(f"AttentionPooling expected units >= 1. Received: units={units}")
        if distribution not in distributions.BY_NAME:
            raise ValueError(
                "AttentionPooling expected distribution to be one of "
                f"{', '.join(distributions.BY_NAME)}. Received: distribution={distribution!r}"
            )
        if not 0 <= dropout < 1:
            raise ValueError(
                f"AttentionPooling expected 0 <= dropout < 1. Received: dropout={dropout}"
            )
        self.units = units
        self.distribution = distribution
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.dropout = dropout
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed) if dropout else None
        self.supports_masking = True

    def build(self, value_shape: tuple) -> None:
        """Make the weights for values of this shape."""
        self._check_shape(value_shape)
        initializer, units = self.kernel_initializer, self.units
        self.kernel = self.add_weight((value_shape[-1], units), initializer, name="kernel")
        self.bias = self.add_weight((units,), "zeros", name="bias")
        self.scale = self.add_weight((units,), initializer, name="scale")

    def call(
        self,
        value: Tensor,
        mask: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Pool; arguments and result as the class says."""
        self._check_shape(value.shape)
        check_mask(self, "mask", mask, value.shape[:-1])
        value, mask = flat_memory(value), flat_mask(mask)
        kernel, bias = ops.cast(self.kernel, value.dtype), ops.cast(self.bias, value.dtype)
        hidden = ops.tanh(ops.matmul(value, kernel) + bias)
        scores = ops.matmul(hidden, ops.cast(self.scale, value.dtype))
        mask = None if mask is None else ops.cast(mask, "bool")
        weights = distributions.BY_NAME[self.distribution](scores, mask)
        dropped = weights
        if training and self.dropout:
            dropped = keras.random.dropout(weights, self.dropout, seed=self.seed_generator)
        pooled = ops.squeeze(ops.matmul(ops.expand_dims(dropped, 1), value), 1)
        return (pooled, weights) if return_attention_scores else pooled

    def _check_shape(self, value: tuple) -> None:
        if len(value) not in (3, 4):
            raise ValueError(
                "AttentionPooling expected a value (B, T, dim) or (B, H, W, dim). "
                f"Received: value {tuple(value)}"
            )

    # Keras.

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> None:
        """Return None: the sequence is gone."""

    def compute_output_shape(self, value_shape: tuple) -> tuple:
        """Return the shape of the pooled vector."""
        return (value_shape[0], value_shape[-1])

    def compute_output_spec(self, value: Any, **kwargs: Any) -> Any:
        """Return the symbolic vector, and weights where they are asked for."""
        self._check_shape(value.shape)
        pooled = keras.KerasTensor(self.compute_output_shape(value.shape), self.compute_dtype)
        if not kwargs.get("return_attention_scores"):
            return pooled
        shape = (value.shape[0], flat_length(value.shape))
        return pooled, keras.KerasTensor(shape, self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "units": self.units,
            "distribution": self.distribution,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "dropout": self.dropout,
            "seed": self.seed,
        }
