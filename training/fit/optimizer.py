"""A model that is ready to be trained: Adam on clipped gradients, at a rate that changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from keras_attention import backend
from training.config.schema import Config
from training.fit.crossentropy import TokenCrossentropy
from training.model.seq2seq import check_attention

Tensor = Any


LARGE = 1 << 20  # weights: of fewer the time that XLA compiles is never got back


class ClippedAdam(keras.optimizers.Adam):
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
        dense = [g for g in grads if g is not None]
        if backend.for_gpu():  # one vector: two kernels, where a sum for each takes one or two
            dense = [ops.concatenate([ops.reshape(g, (-1,)) for g in dense])]
        squares = [ops.sum(ops.square(g)) for g in dense]
        norm = ops.sqrt(ops.sum(ops.stack(squares)))
        self.observe(norm)
        # Written so that a norm that is not finite makes the update nan, and training stops.
        scale = self.clip_norm / ops.maximum(norm, self.clip_norm) + (norm - norm)
        scaled = [None if g is None else g * scale for g in grads]
        sizes = [math.prod(variable.shape) for variable in self.variables]
        alone = backend.is_tensorflow() and not backend.under_xla()
        if not alone or None in scaled or sum(sizes) < LARGE:
            super().apply(scaled, trainable_variables)
            return
        import tensorflow as tf

        # Keras's update is a dozen operations over all weights, which XLA makes one.
        @tf.function(jit_compile=True, autograph=False)
        def update(gradients: list[Tensor]) -> None:
            keras.optimizers.Adam.apply(self, gradients, trainable_variables)

        update([tf.convert_to_tensor(gradient) for gradient in scaled])


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


def configure_keras(config: Config) -> None:
    """Set Keras's seed and precision; refuse an unknown mechanism before data are read."""
    check_attention(config)  # before the seed is set: it draws from the same generator
    keras.utils.set_random_seed(config.seed)
    keras.config.set_dtype_policy(config.precision)


def compile_model(
    model: keras.Model,
    config: Config,
    steps: int,
    observe: Callable[[Any], Any] = lambda norm: None,
    **options: Any,
) -> None:
    """Compile a model with `ClippedAdam`, its loss and further options of Keras's `compile`."""
    if config.target == "label":
        loss: keras.losses.Loss = keras.losses.BinaryCrossentropy(from_logits=True)
    else:
        loss = TokenCrossentropy(config.label_smoothing, config.consistency)
    rate = make_schedule(config, steps)
    optimizer = ClippedAdam(rate, config.clip_norm, observe)
    model.compile(optimizer, loss, jit_compile=config.compiles(), **options)
    model.optimizer.build(model.trainable_variables)
