"""Losses of attention weights.

The functions take weights `(B, T, S)`, from `return_attention_scores`, and return a value for each
row of the batch, float32 `(B,)`. Weights of several heads, `(B, heads, T, S)`, are averaged over
the heads. `AttentionLoss` adds one of these losses to a model.

Masks are boolean, `target_mask` `(B, T)` and `source_mask` `(B, S)`: False positions do not count.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_attention.layer import BaseLayer
from keras_attention.shapes import Tensor


def coverage(
    weights: Tensor, target_mask: Tensor | None = None, source_mask: Tensor | None = None
) -> Tensor:
    """Loss of repeated attention to a place: the mean of `Σ_i min(a_ti, c_ti)` over the steps `t`.

    See, Liu and Manning 2017 (arXiv 1704.04368, eq. 12), with `c_t = Σ_{t'<t} a_t'`.
    """
    weights, target, _ = _masked(weights, target_mask, source_mask)
    before = ops.cumsum(weights, axis=1) - weights
    overlap = ops.sum(ops.minimum(weights, before), axis=-1)
    return ops.sum(overlap * target, axis=1) / ops.maximum(ops.sum(target, axis=1), 1.0)


def doubly_stochastic(
    weights: Tensor, target_mask: Tensor | None = None, source_mask: Tensor | None = None
) -> Tensor:
    """Loss of attention that is uneven over the whole sequence: `Σ_i (1 - Σ_t a_ti)²`.

    Xu et al. 2015 (arXiv 1502.03044, eq. 14). It is 0 if the weights of each place sum to 1.
    """
    weights, _, source = _masked(weights, target_mask, source_mask)
    return ops.sum(ops.square(1.0 - ops.sum(weights, axis=1)) * source, axis=-1)


BY_NAME = {"coverage": coverage, "doubly_stochastic": doubly_stochastic}


@keras.saving.register_keras_serializable("keras_attention")
class AttentionLoss(BaseLayer):
    """Adds a loss of attention weights to the model's loss, and returns the outputs unchanged.

    Use this layer's outputs in the rest of the model: Keras drops a layer on which no output of the
    model depends.

    Args:
        loss: `"coverage"` or `"doubly_stochastic"`, the functions of `keras_attention.losses`.
        weight: factor for the loss, which is the mean over the rows with an unmasked output.
        **kwargs: `name`, `dtype`. The loss is computed in float32.

    Call arguments:
        outputs: of the decoder, `(B, T, ...)`.
        attention_weights: `(B, T, S)` or `(B, heads, T, S)`.
        outputs_mask: boolean `(B, T)`; by default, the mask that Keras passes with the outputs.
        memory_mask: boolean `(B, S)`.

    Output:
        The outputs, unchanged.

    Raises:
        ValueError: if the loss is unknown, or for weights or masks of another shape.

    Example:
        ```python
        target, memory = keras.random.normal((2, 3, 5)), keras.random.normal((2, 7, 6))
        decoder = AttentionRNN(keras.layers.GRUCell(8), CoverageAttention(4))
        outputs, weights = decoder(target, memory, return_attention_scores=True)
        outputs = losses.AttentionLoss("coverage", weight=0.5)(outputs, weights)  # (2, 3, 14)
        ```
    """

    def __init__(self, loss: str, weight: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._expect_one_of("loss", loss, BY_NAME)
        self._expect_number("weight", weight, 0)
        self.loss = loss
        self.weight = weight
        self.supports_masking = True

    def build(self, outputs_shape: Any, attention_weights_shape: Any = None) -> None:
        """Check that attention weights are given. The layer has no weights of its own."""
        self._expect_inputs(attention_weights_shape)

    def call(
        self,
        outputs: Tensor,
        attention_weights: Tensor,
        outputs_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> Tensor:
        """Add the loss, and return the outputs; the class documents the arguments."""
        shape = tuple(attention_weights.shape)
        self._expect(len(shape) in (3, 4), "weights (B, T, S) or (B, heads, T, S)", str(shape))
        batch, *_, time, length = shape
        target = self._checked_mask("outputs_mask", outputs_mask, (batch, time))
        source = self._checked_mask("memory_mask", memory_mask, (batch, length))
        values = BY_NAME[self.loss](attention_weights, target, source)
        there = ops.ones_like(values) if target is None else ops.any(target, axis=1)
        there = ops.cast(there, values.dtype)
        mean = ops.sum(values * there) / ops.maximum(ops.sum(there), 1)
        self.add_loss(self.weight * mean)
        return outputs

    def output_spec(self, outputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the symbolic outputs."""
        return keras.KerasTensor(outputs.shape, self.compute_dtype)


def _masked(
    weights: Tensor, target_mask: Tensor | None, source_mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the weights, 0 where masked, and both masks, all float32."""
    if len(weights.shape) not in (3, 4):
        raise ValueError(
            "A loss of attention weights expected weights (B, T, S) or (B, heads, T, S). "
            f"Received: {tuple(weights.shape)}"
        )
    weights = ops.cast(weights, "float32")
    if len(weights.shape) == 4:
        weights = ops.mean(weights, axis=1)
    # Sums give ones of the masks' shapes (B, T) and (B, S), also for symbolic and empty weights.
    target = ops.ones_like(ops.sum(weights, axis=2)) if target_mask is None else target_mask
    source = ops.ones_like(ops.sum(weights, axis=1)) if source_mask is None else source_mask
    target, source = ops.cast(target, "float32"), ops.cast(source, "float32")
    inside = ops.expand_dims(target, 2) * ops.expand_dims(source, 1) > 0  # (B, T, S)
    return ops.where(inside, weights, 0.0), target, source
