"""Baselines of an outcome, scored on the test split of a run's data.

Logistic regression and boosted trees of the last known values, and published scores.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from lab import shared
from training.command.errors import UserError
from training.config.schema import Config, load_config
from training.runs.files import RunFiles
from training.score._labels import SCORES, bootstrap_people, interval
from training.sources.events import _data as events
from training.sources.events._histories import Histories

Fitted = Callable[[np.ndarray], np.ndarray]
INNER_FOLDS = 3
PENALTIES = (0.01, 0.03, 0.1, 0.3, 1.0)  # scikit-learn's C
ROUNDS = (30, 60, 120)


def last_known(data: Histories) -> np.ndarray:
    """Return the known numbers of each example at its last event, for models without memory.

    Returns:
        float64 `(examples, 2 * inputs + 2)`: the last known number of each input, or its logarithm,
        NaN where none is known; whether it is missing at the last event; the time of the last
        event and the logarithm of the number of events.
    """
    at, lengths = data.ends - 1, data.ends - data.starts
    last = data.last_known()[at].astype("float64")
    last = np.where(data.schema.logged(), np.log(np.maximum(last, 1e-6)), last)
    missing = np.isnan(data.values[at])
    return np.column_stack([last, missing, data.times[at], np.log(lengths)])


def logistic_regression(x: np.ndarray, labels: np.ndarray, people: np.ndarray) -> Fitted:
    """Fit a logistic regression, its penalty chosen by inner validation grouped by people.

    Missing numbers of `last_known` get the mean, and a column that says so.
    """

    def make(penalty: float) -> object:
        return make_pipeline(
            SimpleImputer(keep_empty_features=True, add_indicator=True),
            StandardScaler(),
            LogisticRegression(C=penalty, max_iter=2000),
        )

    return _chosen(make, PENALTIES, x, labels, people)


def boosted_trees(x: np.ndarray, labels: np.ndarray, people: np.ndarray) -> Fitted:
    """Fit boosted trees, their number chosen likewise; see `logistic_regression`."""

    def make(rounds: int) -> object:
        return HistGradientBoostingClassifier(
            max_iter=rounds, learning_rate=0.05, max_leaf_nodes=8, min_samples_leaf=20
        )

    return _chosen(make, ROUNDS, x, labels, people)


def _chosen(
    make: Callable, choices: tuple, x: np.ndarray, labels: np.ndarray, people: np.ndarray
) -> Fitted:
    if (ids := len(np.unique(people))) < INNER_FOLDS:
        raise UserError(f"baselines expected {INNER_FOLDS} ids to train on. Received: {ids}")
    folds = list(GroupKFold(INNER_FOLDS).split(x, labels, people))
    if any(len(np.unique(labels[train])) < 2 for train, _ in folds):
        raise UserError(
            f"baselines expected both outcomes in {INNER_FOLDS - 1} of any {INNER_FOLDS} folds of "
            f"the training ids. Received: {int(labels.sum())} of {len(labels)} examples came true"
        )
    losses = dict.fromkeys(choices, 0.0)
    for train, test in folds:
        for choice in choices:
            chances = _fitted(make(choice), x[train], labels[train])(x[test])
            losses[choice] += float(log_loss(labels[test], chances, labels=[0, 1]))
    return _fitted(make(min(choices, key=lambda choice: losses[choice])), x, labels)


def _fitted(model: Any, x: np.ndarray, labels: np.ndarray) -> Fitted:
    """Fit a model; numbers that are never known in training are left out."""
    unknown = np.isnan(x).all(axis=0)
    with threadpool_limits(1):  # threads that wait for each other cost more than so few rows
        model.fit(np.where(unknown, 0.0, x), labels)
    return lambda numbers: np.asarray(
        model.predict_proba(np.where(unknown, 0.0, numbers))[:, 1], np.float64
    )


BASELINES = {"logistic_regression": logistic_regression, "boosted_trees": boosted_trees}


def mayo_risk(data: Histories) -> np.ndarray:
    """Return the Mayo risk score of primary biliary cirrhosis (Dickson et al. 1989) of `pbcseq`."""
    columns = list(data.schema.columns)
    last = data.values[data.ends - 1].astype("float64")
    age, bili, albumin, protime, edema = (
        last[:, columns.index(name)] for name in ("age", "bili", "albumin", "protime", "edema")
    )
    logs = 0.87 * np.log(bili) - 2.53 * np.log(albumin) + 2.38 * np.log(protime)
    return np.asarray(0.04 * age + logs + 0.86 * edema)


def published(spec: str, data: Histories) -> dict[str, np.ndarray]:
    """Return the published scores of examples, by name."""
    return {"mayo": mayo_risk(data)} if spec == "pbcseq" else {}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the study's options."""
    parser.add_argument("--run", type=Path, required=True, metavar="DIR", help="of the same data")
    parser.add_argument("--split", default="test", metavar="NAME", help="split of the corpus")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Run the study; return the values that its last line prints."""
    config = load_config(RunFiles(options.run).config)
    if config.source != "events":
        raise UserError(f"--run expected source = events. Received: {config.source}")
    rows = _scores(config, options.split)
    shared.write_table(options.output / "baselines.csv", rows)
    return {"baselines": rows}


def _scores(config: Config, name: str) -> list[dict[str, Any]]:
    train, _ = events.load_training(config.data, config.train_limit, config.seed)
    data = events.load(config.data, name, schema=train.schema)
    x, numbers = last_known(train), last_known(data)
    predictions = {
        model: fit(x, train.labels, train.people)(numbers) for model, fit in BASELINES.items()
    }
    predictions |= published(config.data, data)
    rows = [{"model": model} for model in predictions]
    for key, measure in SCORES.items():
        samples = bootstrap_people(data.people, data.labels, predictions, measure)
        for row in rows:
            values = predictions[row["model"]]
            row[key] = measure(data.labels, values)
            row[f"{key}_low"], row[f"{key}_high"] = interval(samples[row["model"]])
    return rows
