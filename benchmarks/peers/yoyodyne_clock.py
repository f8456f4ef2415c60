"""Ends yoyodyne's training after so much processor time; it runs in yoyodyne's environment."""

from __future__ import annotations

import time

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Callback


class Clock(Callback):
    """Ends training once the process has taken so many seconds, that of starting included."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def on_train_batch_end(self, trainer: Trainer, *_: object) -> None:
        """Look at the clock."""
        if time.process_time() >= self.seconds:
            trainer.should_stop = True
