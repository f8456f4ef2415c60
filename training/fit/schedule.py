"""The learning rate over a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from training.config.schema import Config
from training.runs.history import Record, rate_cuts


def make_schedule(config: Config, steps_per_epoch: int) -> Any:
    """Return what Adam takes as its learning rate.

    Over the first `warmup_steps`, at most a tenth of the run, it rises from 0; then it falls on a
    cosine (Loshchilov and Hutter 2016, arXiv 1608.03983), stays, or waits for a `Plateau`.
    """
    total = config.epochs * steps_per_epoch
    warmup = min(config.warmup_steps, total // 10)
    if config.schedule == "plateau":
        return Plateau(config, warmup)
    if config.schedule == "constant" and not config.warmup_steps:
        return config.learning_rate
    return keras.optimizers.schedules.CosineDecay(
        0.0 if warmup else config.learning_rate,
        max(1, total - warmup),
        alpha=1.0 if config.schedule == "constant" else 0.01,
        warmup_target=config.learning_rate if warmup else None,
        warmup_steps=warmup,
    )


class Plateau(keras.optimizers.schedules.LearningRateSchedule):
    """A rate that is cut whenever the dev score has not become better for some epochs.

    It does not look at scores by itself: `follow` is called before each epoch.

    Args:
        config: `learning_rate`, `plateau_patience` and `plateau_factor`.
        warmup_steps: steps over which it rises.
    """

    def __init__(self, config: Config, warmup_steps: int) -> None:
        super().__init__()
        self.config, self.warmup_steps = config, warmup_steps
        self.scale = keras.Variable(1.0, trainable=False, dtype="float32", name="plateau_scale")

    def follow(self, history: Sequence[Record]) -> bool:
        """Set the rate that follows from the epochs so far, and from nothing else.

        Returns:
            Whether it is another one than before.
        """
        before = float(self.scale)
        cuts = rate_cuts(history, self.config.plateau_patience, self.config.keep_by)
        self.scale.assign(self.config.plateau_factor**cuts)
        return float(self.scale) != before

    def __call__(self, step: Any) -> Any:
        """Return the rate at a step, counted from 0."""
        risen = (ops.cast(step, "float32") + 1) / max(1, self.warmup_steps)
        return self.config.learning_rate * self.scale * ops.minimum(risen, 1.0)
