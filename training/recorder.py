"""What is done after each epoch of training, and after the last."""

from __future__ import annotations

import json
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from training import corpus, metrics
from training.batches import Statistics
from training.checkpoints import (
    load_average,
    save_best,
    save_checkpoint,
    save_recent,
    write_text,
)
from training.history import best, dev_score, out_of_patience
from training.inference import make_translator
from training.losses import Perplexity
from training.run import Run
from training.schedule import Plateau


class Recorder(keras.callbacks.Callback):
    """After each epoch: score the dev set, keep the checkpoint and the best weights.

    Args:
        run: where to, and what to translate with.
        dev: the dev set, for translations.
        dev_set: its batches, for the perplexity.
        statistics: of the training set.
        history: the records of the epochs done before.
        rate: the optimizer's learning rate; a `Plateau` is told the history before each epoch.
        gradient_norm: a metric that the optimizer updates at each step.
    """

    def __init__(
        self,
        run: Run,
        dev: corpus.Split,
        dev_set: Any,
        statistics: Statistics,
        history: list,
        rate: Any,
        gradient_norm: keras.metrics.Metric,
    ) -> None:
        super().__init__()
        self.run, self.dev_set, self.statistics = run, dev_set, statistics
        self.history, self.rate, self.gradient_norm = history, rate, gradient_norm
        limit = run.config.validation_limit or len(dev.sources)
        chosen = np.random.default_rng(0).permutation(len(dev.sources))[:limit]
        self.dev = dev.select(sorted(chosen))
        self.translate = make_translator([run], beam_width=1)
        self.perplexity = Perplexity()

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Set the learning rate, start the clock and the mean of the gradient's norm."""
        if isinstance(self.rate, Plateau):
            self.rate.follow(self.history)
        self.gradient_norm.reset_state()
        self.started = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Score, record and save."""
        seconds = time.perf_counter() - self.started
        config, path = self.run.config, self.run.path
        record = {
            "epoch": epoch + 1,
            "loss": float(logs["loss"]),
            **self.score(),
            "gradient_norm": float(self.gradient_norm.result()),
            "learning_rate": float(self.model.optimizer.learning_rate),
            "seconds": round(seconds, 1),
            "target_tokens_per_second": round(self.statistics.target_tokens / seconds),
        }
        logs.update({key: value for key, value in record.items() if key != "epoch"})
        self.history.append(record)
        if best(self.history) is record:
            save_best(path, self.model)
        if config.average_epochs:
            save_recent(path, epoch + 1, self.model, config.average_epochs)
        save_checkpoint(path, epoch + 1, self.model, self.history)
        write_text(path / "history.json", json.dumps(self.history, indent=1) + "\n")
        if out_of_patience(self.history, config.patience):
            print(f"No better score for {config.patience} epochs: training stops.")
            self.model.stop_training = True

    def score(self) -> dict[str, float]:
        """Score the dev set with the model's weights as they are now."""
        self.perplexity.reset_state()
        for inputs, labels in self.dev_set:
            self._add_to_perplexity(inputs, labels)
        hypotheses = self.translate(self.dev.sources)
        scores = metrics.score(self.run.config.metric, hypotheses, self.dev.references)
        numbers = {key: value for key, value in scores.items() if isinstance(value, float)}
        return {"val_perplexity": float(self.perplexity.result()), **numbers}

    def try_average(self) -> None:
        """Score the mean of the last epochs' weights; the best of the run are the better ones.

        The model is left with the mean. Nothing is done for a history whose mean is known.
        """
        file = self.run.path / "average.json"
        known = json.loads(file.read_text())["epochs"] if file.is_file() else [0]
        if known[-1] == self.history[-1]["epoch"]:
            return
        epochs = load_average(self.run.path, self.run.model)
        average = {"epochs": epochs, **self.score()}
        kept = dev_score(average) > dev_score(best(self.history))
        if kept:
            save_best(self.run.path, self.run.model)
        write_text(file, json.dumps({**average, "kept": kept}, indent=1) + "\n")
        print(f"Mean weights of epochs {epochs[0]} to {epochs[-1]}: {json.dumps(average)}")

    @tf.function(reduce_retracing=True, autograph=False)
    def _add_to_perplexity(self, inputs: dict, labels: tf.Tensor) -> None:
        self.perplexity.update_state(labels, self.run.model(inputs, training=False))
