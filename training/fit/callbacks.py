"""Keras callbacks of a training: the epoch's record, and a bar."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import keras

from training.command.progress import progress
from training.fit.recorder import Recorder


class EpochEnd(keras.callbacks.Callback):
    """Records each epoch at its end, with the mean norm of its gradients."""

    def __init__(self, recorder: Recorder, gradient_norm: keras.metrics.Metric) -> None:
        super().__init__()
        self.recorder, self.gradient_norm = recorder, gradient_norm

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Start the clock and the mean of the gradient's norm."""
        self.gradient_norm.reset_state()
        self.started = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Record; other callbacks, such as TensorBoard's, get the numbers too."""
        seconds = time.perf_counter() - self.started
        assert logs is not None
        norm = float(self.gradient_norm.result())
        record = self.recorder.finish(logs["loss"], seconds, gradient_norm=norm)
        logs.update({key: value for key, value in record.items() if key != "epoch"})


class EpochEnds(keras.callbacks.Callback):
    """Calls others at the ends of epochs; as a context manager it ends them.

    Every epoch is a `fit` of its own, at whose end they would close their files.
    """

    def __init__(self, model: keras.Model, others: Sequence[keras.callbacks.Callback]) -> None:
        super().__init__()
        self.others = others
        for other in others:
            other.set_model(model)

    def __enter__(self) -> EpochEnds:
        return self

    def __exit__(self, *error: object) -> None:
        for other in self.others:
            other.on_train_end()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Hand the numbers on."""
        for other in self.others:
            other.on_epoch_end(epoch, logs)


class Bar(keras.callbacks.Callback):
    """A bar for the steps of each epoch on standard error, where that is a terminal.

    As a context manager it takes the bar away at its end, after an error as well.
    """

    def __init__(self) -> None:
        super().__init__()
        self.shown = ExitStack()
        self.advance: Callable[[int], None] = lambda count: None

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *error: object) -> None:
        self.shown.close()

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Begin a new bar."""
        unit = f"steps of epoch {epoch + 1}"
        self.advance = self.shown.enter_context(progress(self.params["steps"], unit))

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Move it on."""
        self.advance(1)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Take it away."""
        self.shown.close()
