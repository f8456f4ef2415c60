"""Adam that clips the whole gradient and tells its norm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from keras import ops

from training.fit.optimizer import Adam

Tensor = Any


class ClippedAdam(Adam):
    """Adam on gradients whose norm, over all weights, is at most `clip_norm`.

    It does what Adam with `global_clipnorm` does (Pascanu et al. 2012, arXiv 1211.5063, section
    3.2); the norm that the clipping needs is told besides, so that watching it costs nothing.

    Args:
        learning_rate: a rate or a schedule.
        clip_norm: the largest norm, above 0.
        observe: called in each step with the norm before clipping, a float32 scalar.
    """

    def __init__(
        self,
        learning_rate: Any,
        clip_norm: float,
        observe: Callable[[Tensor], Any] = lambda norm: None,
    ) -> None:
        super().__init__(learning_rate)
        self.clip_norm = clip_norm
        self.observe = observe

    def apply(self, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> None:
        """Update the weights; a weight's gradient may be None."""
        squares = [ops.sum(ops.square(g)) for g in grads if g is not None]
        norm = ops.sqrt(ops.sum(ops.stack(squares)))
        self.observe(norm)
        # Written so that a norm that is not finite makes the update nan, and training stops.
        scale = self.clip_norm / ops.maximum(norm, self.clip_norm) + (norm - norm)
        super().apply([None if g is None else g * scale for g in grads], trainable_variables)
