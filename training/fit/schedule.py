"""The learning rate over a run."""

from __future__ import annotations

from typing import Any

import keras

from training.config.schema import Config


def make_schedule(config: Config, steps_per_epoch: int) -> Any:
    """Return what Adam takes as its learning rate.

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
