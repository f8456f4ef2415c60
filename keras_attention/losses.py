"""Losses of attention weights.

The functions take weights `(B, T, S)`, from `return_attention_scores`, and return one value for
each row of the batch, float32 `(B,)`. Several heads, `(B, heads, T, S)`, are averaged.
`AttentionLoss` adds one of them to a model.

Masks are boolean, `target_mask` `(B, T)` and `source_mask` `(B, S)`: False positions do not count.
Weights carry the masks that their layer was called with, which hold where none is given. Tensors
computed from weights, such as a slice, carry none: give them the masks.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_attention import masks
from keras_attention.shapes import checked_mask, is_empty

Tensor = Any


def coverage(
    weights: Tensor, target_mask: Tensor | None = None, source_mask: Tensor | None = None
) -> Tensor:
    """Repeated attention to the same places: `Σ_i min(a_ti, c_ti)`, the mean over the steps `t`.

    See, Liu and Manning 2017 (arXiv 1704.04368, eq. 12), with `c_t = Σ_{t'<t} a_t'`.
    """
    weights, target, _ = _masked(weights, target_mask, source_mask)
    before = ops.cumsum(weights, axis=1) - weights
    overlap = ops.sum(ops.minimum(weights, before), axis=-1)
    return ops.sum(overlap * target, axis=1) / ops.maximum(ops.sum(target, axis=1), 1.0)


def doubly_stochastic(
    weights: Tensor, target_mask: Tensor | None = None, source_mask: Tensor | None = None
) -> Tensor:
    """Uneven attention over the whole sequence: `Σ_i (1 - Σ_t a_ti)²`.

    Xu et al. 2015 (arXiv 1502.03044, eq. 14): the weights of each place sum to 1.
    """
    weights, _, source = _masked(weights, target_mask, source_mask)
    return ops.sum(ops.square(1.0 - ops.sum(weights, axis=1)) * source, axis=-1)


BY_NAME = {"coverage": coverage, "doubly_stochastic": doubly_stochastic}


@keras.saving.register_keras_serializable("keras_attention")
class AttentionLoss(keras.layers.Layer):
    """Adds a loss of attention weights to the model's loss, and passes the weights on.

    Keras drops layers that no output of a functional model depends on: make the weights that this
    returns an output, or compute one of them. An attention layer refuses to be trained in a model
    that has dropped a loss of its weights.

    Args:
        loss: `"coverage"` or `"doubly_stochastic"`, the functions of `keras_attention.losses`.
        weight: factor for the loss, which is the mean over the batch.

    Call arguments:
        attention_weights: `(B, T, S)` or `(B, heads, T, S)`.
        target_mask: boolean `(B, T)`; the one that the weights carry if not given.
        source_mask: boolean `(B, S)`; the one that the weights carry if not given.

    Output:
        The weights, unchanged.

    Raises:
        ValueError: if the loss is unknown, or for weights or masks of another shape.

    Example:
        ```python
        weights = keras.ops.softmax(keras.random.normal((2, 3, 7)))
        layer = losses.AttentionLoss("coverage", weight=0.5)
        weights = layer(weights)  # unchanged; layer.losses holds the loss
        ```
    """

    def __init__(self, loss: str, weight: float = 1.0, **kwargs: Any) -> None:
        # Without autocast: a cast tensor would carry no masks, and all is computed in float32.
        super().__init__(**{"autocast": False, **kwargs})
        if loss not in BY_NAME:
            raise ValueError(
                f"AttentionLoss expected loss to be one of {', '.join(BY_NAME)}. "
                f"Received: loss={loss!r}"
            )
        self.loss_name = loss
        self.weight = weight
        self.awaited = False
        self.built = True

    def call(
        self,
        attention_weights: Tensor,
        target_mask: Tensor | None = None,
        source_mask: Tensor | None = None,
    ) -> Tensor:
        """Add the loss."""
        self.awaited = False
        if len(attention_weights.shape) not in (3, 4):
            raise ValueError(
                "AttentionLoss expected attention weights (B, T, S) or (B, heads, T, S). "
                f"Received: {tuple(attention_weights.shape)}"
            )
        batch, *_, time, length = attention_weights.shape
        target_mask = checked_mask(self, "target_mask", target_mask, (batch, time))
        source_mask = checked_mask(self, "source_mask", source_mask, (batch, length))
        values = BY_NAME[self.loss_name](attention_weights, target_mask, source_mask)
        mean = ops.sum(values) if is_empty(values) else ops.mean(values)
        self.add_loss(self.weight * mean)
        return attention_weights

    def compute_output_spec(self, attention_weights: Any, **kwargs: Any) -> Any:
        """Return the symbolic weights."""
        return keras.KerasTensor(attention_weights.shape, attention_weights.dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "loss": self.loss_name, "weight": self.weight}


def await_losses(layer: keras.layers.Layer) -> None:
    """Expect the losses of the weights that a layer now returns in training.

    A functional model drops layers that no output depends on: `expect_losses` notices.
    """
    for loss in _losses_after(layer):
        loss.awaited = True


def expect_losses(layer: keras.layers.Layer) -> None:
    """Raise a ValueError if a loss of the layer's weights has not been added since."""
    for loss in _losses_after(layer):
        if loss.awaited:
            loss.awaited = False
            raise ValueError(
                f"{type(layer).__name__} expected a model that adds {loss.name!r}, the loss of its "
                "weights: make what AttentionLoss returns an output of the model, or compute one "
                "of it. Received: a model whose outputs do not depend on it, so that Keras has "
                "left it out"
            )


def _losses_after(operation: Any) -> list[AttentionLoss]:
    """Return the losses of what an operation made, through slices and means of it."""
    found = []
    for node in operation._outbound_nodes:
        if isinstance(node.operation, AttentionLoss):
            found.append(node.operation)
        elif not isinstance(node.operation, keras.layers.Layer):
            found.extend(_losses_after(node.operation))
    return found


def _masked(
    weights: Tensor, target_mask: Tensor | None, source_mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the weights, 0 where masked, and both masks, all float32."""
    if len(weights.shape) not in (3, 4):
        raise ValueError(
            "A loss of attention weights expected weights (B, T, S) or (B, heads, T, S). "
            f"Received: {tuple(weights.shape)}"
        )
    carried = masks.carried(weights)
    target_mask = carried.target if target_mask is None else target_mask
    source_mask = carried.source if source_mask is None else source_mask
    weights = ops.cast(weights, "float32")
    if len(weights.shape) == 4:
        weights = ops.mean(weights, axis=1)
    # Sums have the shapes that are wanted, of symbolic weights and of empty ones, too.
    target = ops.ones_like(ops.sum(weights, axis=2)) if target_mask is None else target_mask
    source = ops.ones_like(ops.sum(weights, axis=1)) if source_mask is None else source_mask
    target, source = ops.cast(target, "float32"), ops.cast(source, "float32")
    return weights * ops.expand_dims(target, 2) * ops.expand_dims(source, 1), target, source
