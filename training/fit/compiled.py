"""A model that is ready to be trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from training.config.schema import Config
from training.fit.crossentropy import TokenCrossentropy
from training.fit.optimizer import ClippedAdam, make_schedule
from training.model.seq2seq import check_attention


def settle(config: Config) -> None:
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
