"""Trains, scores, records and saves epochs, and averages the last ones, on any backend."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras

from keras_attention import backend
from training.command.errors import RunError
from training.command.files import read_json, write_json
from training.command.progress import progress
from training.config.schema import Config
from training.data.batches._plan import Statistics
from training.data.batches._shapes import PredictedSeconds
from training.runs._card import FIGURES, draw_curves, write_card
from training.runs.checkpoints import load_average, save_best, save_checkpoint, save_recent
from training.runs.files import Record, RunFiles, best, kept_average, rank, reason_to_stop

DRAWN_EVERY = 30  # least seconds between two drawings of pictures; drawing takes a second


@dataclass
class Recorder:
    """Records each epoch, and saves its checkpoint and, if best so far, its weights."""

    files: RunFiles
    config: Config
    model: keras.Model
    statistics: Statistics  # of the training set
    history: list[Record]  # `finish` appends to it
    score: Callable[[], Mapping[str, float]]  # scores the dev set with the current weights
    write: Callable[..., None] = lambda function, *args: function(*args)  # calls writing functions
    draw: Callable[[], None] = lambda: None  # draws pictures in addition to the curves
    drawn: float = -math.inf  # time of the last drawing

    def finish(self, loss: float, seconds: float) -> Record:
        """Score the model, and record and save the epoch; return its record.

        Args:
            loss: the mean training loss of the epoch.
            seconds: the duration of the epoch.

        Raises RunError if the loss, a score or a weight is not finite; then nothing is saved.
        """
        epoch = len(self.history) + 1
        record: Record = {"epoch": epoch, "loss": float(loss)}
        self._check(record)
        record |= {
            **self.score(),
            "learning_rate": float(self.model.optimizer.learning_rate),
            "seconds": round(seconds, 1),
            "target_tokens_per_second": round(self.statistics.target_tokens / seconds),
        }
        self._check(record)
        self.history.append(record)
        self.write(self._keep, record)
        return record

    def _keep(self, record: Record) -> None:
        """Write the files of the last epoch of the history, and print its record."""
        epoch = len(self.history)
        average = kept_average(self.files)
        scored = [average, *self.history] if average else self.history
        is_best = record is best(scored, self.config.keep_epoch)
        if is_best:
            self.files.average.unlink(missing_ok=True)  # the best weights are no longer a mean
            save_best(self.files, self.model)
        if self.config.average_epochs:
            save_recent(self.files, epoch, self.model, self.config.average_epochs)
        save_checkpoint(self.files, self.model, self.history)
        write_json(self.files.history, self.history)
        if time.monotonic() - self.drawn > DRAWN_EVERY:
            self.draw_pictures()
            self.drawn = time.monotonic()
        write_card(self.files, self.config, self.model)
        epochs = self.config.epochs
        line = f"epoch {epoch:>{len(str(epochs))}}/{epochs}  {numbers_line(record)}"
        print(f"{line}{'  best' if is_best else ''}", flush=True)

    def draw_pictures(self) -> None:
        """Draw the curves, and the pictures that need the current weights."""
        draw_curves(self.files, self.config)
        self.draw()

    def try_average(self) -> None:
        """Score the mean of the last epochs' weights, and save it as the best if it is better.

        Afterwards the model has the mean weights. If the mean of these epochs has been scored
        before, nothing happens.
        """
        last, count = len(self.history), self.config.average_epochs
        epochs = [e for e in self.files.all_recent_weights() if last - count < e <= last]
        if len(epochs) < min(count, last):
            print(
                f"note: average_epochs needs the weights of the last {min(count, last)} epochs, "
                f"but the run has kept only {len(epochs)}"
            )
        file = self.files.average
        if not epochs or (file.is_file() and read_json(file)["epochs"] == epochs):
            return
        load_average(self.files, self.model, epochs)
        self.write(self._keep_average, epochs, dict(self.score()))

    def _keep_average(self, epochs: list[int], scores: dict[str, float]) -> None:
        """Write and print the scores of the mean of these epochs; the model has its weights."""
        by = self.config.keep_epoch
        is_kept = rank(scores, by) > rank(best(self.history, by), by)
        earlier = kept_average(self.files)
        is_kept = is_kept and (by == "last" or not earlier or rank(scores, by) > rank(earlier, by))
        if is_kept:
            save_best(self.files, self.model)
        tried = {"epochs": epochs, **scores, "kept": is_kept}
        if earlier and not is_kept:
            tried["earlier"] = earlier
        write_json(self.files.average, tried)
        print(f"mean of epochs {epochs[0]} to {epochs[-1]}  {numbers_line(scores)}")
        write_card(self.files, self.config, self.model)

    def _check(self, record: Record) -> None:
        """Raise a RunError if a number of the record is not finite."""
        for key, value in record.items():
            if not math.isfinite(value):
                state = f"epoch {len(self.history)} is kept" if self.history else "nothing is kept"
                raise RunError(
                    f"Training diverged in epoch {record['epoch']} ({key} is {value}), and "
                    f"{state}. Start again with a lower --set learning_rate=… or --set clip_norm=…"
                )


def numbers_line(record: Mapping[str, float]) -> str:
    """Return the figures of a record as one line of text."""
    return "  ".join(f"{name} {record[key]:.4g}" for key, name in FIGURES.items() if key in record)


def describe(files: RunFiles, model: keras.Model, shapes: str, processes: str = "") -> None:
    """Print the model's size, the device, the run directory and the shapes of batches."""
    print(
        f"{model.count_params():,} parameters; {keras.backend.backend()} on "
        f"{_device()}{processes}, Keras {keras.__version__}. Run directory: {files.path}"
    )
    if shapes:
        print(shapes)
    sys.stdout.flush()


def _device() -> str:
    """Return the name of the device that the backend computes on."""
    if keras.backend.backend() == "jax":
        import jax

        return str(jax.devices()[0].device_kind)
    if keras.backend.backend() == "torch":
        import torch

        return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    if keras.distribution.list_devices("gpu"):
        return "GPU"
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip()[:1] in ("", "-")
    drivers = (*Path("/dev").glob("nvidia[0-9]*"), *Path("/dev").glob("dxg"))  # Linux, WSL2
    if hidden or backend.wanted_device() or not drivers:
        return "cpu"
    return "cpu, beside a GPU that it does not find: see docs/guides/gpu.md"


def train_epochs(
    recorder: Recorder, batches: Callable[[int], Any], predicted: PredictedSeconds | None = None
) -> Record:
    """Train the missing epochs, and try the mean of the last ones; return the last record.

    Args:
        recorder: records the epochs.
        batches: a function from the number of an epoch, from 0, to its batches.
        predicted: the estimated time of all epochs on one H200, if known. Then the speed of the
            second epoch is printed next to the estimate.
    """
    config, history, before = recorder.config, recorder.history, len(recorder.history)
    steps = recorder.statistics.steps_per_epoch
    while (reason := reason_to_stop(history, config)) is None:
        epoch, started = len(history), time.perf_counter()
        with progress(steps, f"steps of epoch {epoch + 1}") as advance:
            count_step = keras.callbacks.LambdaCallback(
                on_train_batch_end=lambda _, logs, advance=advance: advance(1, loss=logs["loss"])
            )
            fitted = recorder.model.fit(
                batches(epoch),
                initial_epoch=epoch,
                epochs=epoch + 1,
                steps_per_epoch=steps,
                callbacks=[count_step, keras.callbacks.TerminateOnNaN()],
                shuffle=False,  # `batches` shuffles them in each epoch
                verbose=0,
            )
        record = recorder.finish(fitted.history["loss"][0], time.perf_counter() - started)
        if predicted and epoch == before + 1:  # XLA compiled in the first epoch
            seconds = predicted.graph or predicted.training
            expected = recorder.statistics.target_tokens * config.epochs / seconds
            print(
                f"{record['target_tokens_per_second']:,} target tokens per second. Expected on an "
                f"H200: {expected:,.0f}. If yours is far slower, see docs/guides/gpu.md"
            )
    if reason:
        print(f"{reason}: training stops.")
    if config.average_epochs:
        recorder.try_average()
    recorder.write(recorder.draw_pictures)
    return history[-1]
