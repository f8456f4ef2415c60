"""Adam in one pass over the weights, on clipped gradients, at a rate that changes over a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from keras_attention.fast import switch
from training.config.schema import Config

Tensor = Any


@keras.saving.register_keras_serializable("training")
class Adam(keras.optimizers.Adam):
    """`keras.optimizers.Adam` (Kingma and Ba 2014, arXiv 1412.6980), faster on TensorFlow.

    Keras's update is a dozen operations, each of which reads and writes tensors as large as the
    weights; TensorFlow has one operation for all. Arguments, variables and results are the same,
    but for one thing: parts of a sparse gradient for the same row are added before they are
    squared, as in a dense gradient.
    """

    def __init__(self, *args: Any, name: str = "adam", **kwargs: Any) -> None:
        super().__init__(*args, name=name, **kwargs)

    def update_step(self, gradient: Tensor, variable: Any, learning_rate: Tensor) -> None:
        """Update a variable and its moments."""
        if not switch.enabled() or keras.backend.backend() != "tensorflow" or self.amsgrad:
            super().update_step(gradient, variable, learning_rate)
            return
        import tensorflow as tf

        dtype, index = variable.dtype, self._get_variable_index(variable)  # a tf.Variable
        step = tf.cast(self.iterations.value, dtype) + 1
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=tf.pow(tf.cast(self.beta_1, dtype), step),
            beta2_power=tf.pow(tf.cast(self.beta_2, dtype), step),
            lr=tf.cast(learning_rate, dtype),
            beta1=tf.cast(self.beta_1, dtype),
            beta2=tf.cast(self.beta_2, dtype),
            epsilon=tf.cast(self.epsilon, dtype),
            grad=tf.cast(tf.convert_to_tensor(gradient), dtype),
        )


class ClippedAdam(Adam):
    """Adam on gradients whose norm, over all weights, is at most `clip_norm`.

    It is Adam with `global_clipnorm` (Pascanu et al. 2012, arXiv 1211.5063, section 3.2). Each step
    calls `observe` with the norm before clipping, a float32 scalar.
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


def make_schedule(config: Config, steps_per_epoch: int) -> Any:
    """Return the learning rate, or its schedule.

    Over the first `warmup_steps`, at most a tenth of the run, it rises from 0; then it falls on a
    cosine (Loshchilov and Hutter 2016, arXiv 1608.03983), or stays.
    """
    total = config.epochs * steps_per_epoch
    warmup = min(config.warmup_steps, total // 10)
    if config.schedule == "constant" and not config.warmup_steps:
        return config.learning_rate
    return keras.optimizers.schedules.CosineDecay(
        0.0 if warmup else config.learning_rate,
        max(1, total - warmup),
        alpha=1.0 if config.schedule == "constant" else 0.01,
        warmup_target=config.learning_rate if warmup else None,
        warmup_steps=warmup,
    )
