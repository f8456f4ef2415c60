"""Does the order of events matter, and does attention, in a history?

Recurrent models of histories in cross-validation grouped by people: with attention pooling and
with the last state alone; trained and tested on events in a random order; trained in order and
tested in a random one. Beside them, in the same folds, logistic regression and boosted trees of the
last known values, and published scores. The number of epochs is chosen by inner validation, of each
model by itself, in the first fold. Intervals are by bootstrap over people, of the first repeat.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
from matplotlib.figure import Figure
from sklearn.calibration import calibration_curve
from sklearn.model_selection import GroupShuffleSplit, StratifiedGroupKFold

from lab import shared
from lab.baselines import BASELINES, last_known, published
from training.command.errors import UserError
from training.command.options import add_options as add_common
from training.command.progress import progress
from training.config.schema import Config, load_preset, override
from training.fit._optimizer import ClippedAdam
from training.metrics import auc
from training.model.seq2seq import build_model
from training.score import _labels as scores
from training.sources.events import _data as events
from training.sources.events._histories import Histories
from training.sources.events.source import last_events

# Of each: whether it attends, and whether events are shuffled in training and in testing.
VARIANTS = {
    "attention": ("additive", False, False),
    "last_state": ("none", False, False),
    "attention_shuffled": ("additive", True, True),
    "last_state_shuffled": ("none", True, True),
    "attention_read_shuffled": ("additive", False, True),
    "last_state_read_shuffled": ("none", False, True),
}
EPOCHS = (8, 16, 32)
REPEATS, FOLDS = 5, 5  # trainings of each, and folds of the cross-validation
SAMPLES = 300  # of the bootstrap


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the study's options."""
    parser.add_argument("--preset", default="pbcseq", metavar="NAME", help="preset of the models")
    add_common(parser, "--set")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Run the study; return the values that its last line prints."""
    config = override(load_preset(options.preset), options.settings)
    if config.source != "events":
        raise UserError(f"--preset expected source = events. Received: {config.source}")
    data = events.load(config.data, "all")
    learners = {
        attention: Learner(override(config, [f"attention={attention}"]), data)
        for attention in ("additive", "none")
    }
    x = last_known(data)
    key = config.values()
    said: dict[str, list[np.ndarray]] = {}
    chosen: dict[str, int] = {}
    with progress(REPEATS * FOLDS, "folds") as advance:
        for repeat in range(REPEATS):
            folds = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=repeat)
            for fold, (train, test) in enumerate(folds.split(x, data.labels, data.people)):
                if not chosen:
                    file = options.output / "folds" / "epochs.json"
                    chosen = shared.kept(file, key, partial(_choose, learners, train))
                seed = FOLDS * repeat + fold
                predict = partial(_predict, learners, chosen, data, x, train, test, seed)
                file = options.output / "folds" / f"{repeat}-{fold}.json"
                values = shared.kept(file, [key, chosen], predict)
                for name, one in values.items():
                    rows = said.setdefault(name, [])
                    if len(rows) <= repeat:
                        rows.append(np.full(len(x), np.nan))
                    rows[repeat][test] = one
                shown = [
                    f"{n} {auc(data.labels[test], np.array(v)):.3f}" for n, v in values.items()
                ]
                print(f"repeat {repeat + 1}, fold {fold + 1}: {', '.join(shown)}", flush=True)
                advance(1)
    said |= {name: [values] for name, values in published(config.data, data).items()}
    table = _table(data, said, SAMPLES)
    shared.write_table(options.output / "order.csv", table)
    drawn = {name: (data.labels, said[name][0]) for name in said if name in _SHOWN}
    _draw_calibration(drawn, options.output / "calibration.png")
    return {
        "data": config.data,
        "examples": len(data.labels),
        "people": len(np.unique(data.people)),
        "positive": int(data.labels.sum()),
        "repeats": REPEATS,
        "folds": FOLDS,
        "epochs": chosen,
        "scores": table,
    }


_SHOWN = ("attention", "last_state", "logistic_regression")


def _draw_calibration(predictions: dict[str, tuple[np.ndarray, np.ndarray]], path: Path) -> None:
    """Draw the share of true outcomes over the predicted probability, in tenths."""
    figure = Figure(figsize=(4.5, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    for name, (labels, probabilities) in predictions.items():
        came, predicted = calibration_curve(labels, probabilities, n_bins=10, strategy="quantile")
        axes.plot(predicted, came, marker=".", label=name)
    axes.set_xlabel("probability said, mean of a tenth")
    axes.set_ylabel("share that came true")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)


def _trained_as(attention: str, shuffled: bool) -> str:
    return f"{attention}, shuffled" if shuffled else attention


def _choose(learners: dict[str, Learner], train: np.ndarray) -> dict[str, int]:
    """Return the number of epochs of each model, by how it is trained."""
    ways = {(attention, shuffled) for attention, shuffled, _ in VARIANTS.values()}
    return {
        _trained_as(attention, shuffled): learners[attention].choose_epochs(train, shuffled)
        for attention, shuffled in sorted(ways)
    }


def _predict(
    learners: dict[str, Learner],
    chosen: dict[str, int],
    data: Histories,
    x: np.ndarray,
    train: np.ndarray,
    test: np.ndarray,
    seed: int,
) -> dict[str, list[float]]:
    """Return the predictions of each model for the test examples of a fold."""
    said: dict[str, list[float]] = {}
    fitted = ""
    # Variants that share their training stand one after another.
    for name, (attention, shuffled, read) in sorted(VARIANTS.items(), key=lambda v: v[1][:2]):
        learner, way = learners[attention], _trained_as(attention, shuffled)
        if fitted != way:
            learner.fit(train, chosen[way], seed, shuffled)
            fitted = way
        said[name] = learner.predict(test, read).tolist()
    for name, fit in BASELINES.items():
        said[name] = fit(x[train], data.labels[train], data.people[train])(x[test]).tolist()
    return said


class Learner:
    """A model that is compiled once, and trained from the start on several parts of the data."""

    def __init__(self, config: Config, data: Histories) -> None:
        self.config, self.data = config, data
        rows = last_events(data, config.max_events)
        self.batch = rows.select(np.arange(len(data.labels))[:, None], config.max_events).padded()
        self.shuffled = _shuffled(self.batch, rows.lengths, seed=0)
        self.size = data.values.shape[1]
        self.model = build_model(config, self.size)
        self.model.compile(
            ClippedAdam(1e-3, config.clip_norm),
            keras.losses.BinaryCrossentropy(from_logits=True),
            jit_compile=False,  # XLA takes four times as long for so small a loop, on a CPU
        )
        self.model.optimizer.build(self.model.trainable_variables)
        self.fresh = [variable.numpy() for variable in self.model.optimizer.variables]

    def fit(self, train: np.ndarray, epochs: int, seed: int, shuffled: bool = False) -> None:
        """Train from the start on some examples, with a learning rate that falls on a cosine."""
        keras.utils.set_random_seed(seed)
        self.model.set_weights(build_model(self.config, self.size).get_weights())
        for variable, value in zip(self.model.optimizer.variables, self.fresh, strict=True):
            variable.assign(value)
        features = self.model.get_layer("encoder").get_layer("features")
        features.adapt(self.data.select(train))
        batch, labels = (self.shuffled if shuffled else self.batch), self.data.labels
        rng, size = np.random.default_rng(seed), self.config.batch_size
        steps = max(1, len(train) // size)
        for epoch in range(epochs):
            order = rng.permutation(train)
            for step in range(steps):
                done = (epoch * steps + step) / (epochs * steps)
                rate = self.config.learning_rate * 0.5 * (1 + np.cos(np.pi * done))
                self.model.optimizer.learning_rate = rate
                rows = order[step * size : (step + 1) * size]
                self.model.train_on_batch({"source": batch[rows]}, labels[rows])

    def predict(self, test: np.ndarray, shuffled: bool = False, chunk: int = 512) -> np.ndarray:
        """Return the probabilities of some examples."""
        batch = self.shuffled if shuffled else self.batch
        logits = []
        for first in range(0, len(test), chunk):
            rows = test[first : first + chunk]
            filled = np.concatenate([rows, np.repeat(rows[-1:], chunk - len(rows))])
            found = self.model.predict_on_batch({"source": batch[filled]})
            logits.append(np.asarray(found)[: len(rows)])
        return 1 / (1 + np.exp(-np.concatenate(logits).astype("float64")))

    def choose_epochs(self, train: np.ndarray, shuffled: bool) -> int:
        """Return how many epochs are best for a fifth of the people in training, held out."""
        split = GroupShuffleSplit(1, test_size=0.2, random_state=0)
        kept, held = next(split.split(train, groups=self.data.people[train]))
        losses = {}
        for epochs in EPOCHS:
            self.fit(train[kept], epochs, seed=0, shuffled=shuffled)
            probabilities = self.predict(train[held], shuffled)
            losses[epochs] = scores.cross_entropy(self.data.labels[train[held]], probabilities)
        return min(losses, key=lambda epochs: losses[epochs])


def _shuffled(batch: np.ndarray, lengths: np.ndarray, seed: int) -> np.ndarray:
    """Return histories whose events, with their times, stand in a random order.

    At each event that is known which those before it, in this order, have said.
    """
    rng, found, size = np.random.default_rng(seed), batch.copy(), batch.shape[2] // 2
    for row, length in enumerate(lengths):
        events = batch[row, rng.permutation(length)]
        values = events[:, 1 : 1 + size]
        last = np.where(np.isnan(values), -1, np.arange(length)[:, None])
        last = np.maximum.accumulate(last)
        known = np.take_along_axis(values, last, axis=0)
        events[:, 1 + size :] = np.where(last < 0, np.nan, known)
        found[row, :length] = events
    return found


def _table(
    data: Histories, said: dict[str, list[np.ndarray]], samples: int
) -> list[dict[str, Any]]:
    """Return a row for each model: means over repeats, and intervals."""
    first = {name: values[0] for name, values in said.items()}
    drawn = {
        key: scores.bootstrap_people(data.people, data.labels, first, score, samples=samples)
        for key, score in scores.SCORES.items()
    }
    rows = []
    for name, repeats in said.items():
        row: dict[str, Any] = {"model": name}
        for key, score in scores.SCORES.items():
            found = [score(data.labels, values) for values in repeats]
            low, high = scores.interval(drawn[key][name])
            row |= {
                key: float(np.mean(found)),
                f"{key}_sd": float(np.std(found)),
                f"{key}_low": low,
                f"{key}_high": high,
            }
        for other in ("logistic_regression", "last_state"):
            low, high = scores.interval(drawn["auc"][name] - drawn["auc"][other])
            row |= {f"minus_{other}_low": low, f"minus_{other}_high": high}
        rows.append(row)
    return rows
