"""Scores of runs that predict an outcome, with bootstrap intervals over people."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from training.command.errors import UserError
from training.decode.labels import make_predictor
from training.metrics import METRICS, OF_OUTCOMES
from training.runs.run import Run
from training.sources.events._histories import Histories

Score = Callable[[np.ndarray, np.ndarray], float]
SCORES = {name: METRICS[name].score for name in OF_OUTCOMES}


def evaluate_labels(
    runs: Sequence[Run], data: Histories, *, bootstrap: bool = False
) -> dict[str, Any]:
    """Score the probabilities of a run, or the mean probabilities of several runs.

    Args:
        runs: the runs to score.
        data: the examples, with labels.
        bootstrap: whether to add 95 % intervals, from resampled people with all their examples.

    Returns:
        `auc` and `auprc`, if both outcomes occur; `cross_entropy`, `calibration_error`, `examples`,
        `people`, `positive`, `seconds`.

    Raises UserError with `bootstrap` if all examples have the same outcome.
    """
    positive = int(data.labels.sum())
    alike = positive in (0, len(data.labels))
    if bootstrap and alike:
        true = f"{positive} of {len(data.labels)} examples came true"
        raise UserError(f"--bootstrap needs examples of both outcomes, but {true}")
    predict = make_predictor(runs)
    started = time.perf_counter()
    probabilities = predict(data).probabilities
    seconds = time.perf_counter() - started
    result: dict[str, Any] = {}
    if alike:
        print("All examples have the same outcome, so AUC and AUPRC are undefined.")
    for key, score in ({} if alike else SCORES).items():
        result[key] = score(data.labels, probabilities)
        if bootstrap:
            predictions = {key: probabilities}
            samples = bootstrap_people(data.people, data.labels, predictions, score)
            result[f"{key}_interval"] = interval(samples[key])
    result["cross_entropy"] = cross_entropy(data.labels, probabilities)
    result["calibration_error"] = calibration_error(data.labels, probabilities)
    return {
        **result,
        "examples": len(data.labels),
        "people": len(np.unique(data.people)),
        "positive": positive,
        "seconds": round(seconds, 1),
    }


def cross_entropy(labels: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the mean cross-entropy of N labels and probabilities, in nats."""
    clipped = np.clip(np.asarray(probabilities, np.float64), 1e-7, 1 - 1e-7)
    return float(-np.mean(labels * np.log(clipped) + (1 - labels) * np.log(1 - clipped)))


def calibration_error(labels: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the mean gap between predicted and true share, over 10 bins of equal size."""
    parts = np.array_split(np.argsort(probabilities, kind="stable"), 10)
    gaps = [abs(labels[part].sum() - probabilities[part].sum()) for part in parts]
    return float(np.sum(gaps) / len(labels))


def bootstrap_people(
    people: Sequence | np.ndarray,
    labels: np.ndarray,
    predictions: dict[str, np.ndarray],
    score: Score,
    *,
    samples: int = 300,
) -> dict[str, np.ndarray]:
    """Score samples of people, each person with all examples (a cluster bootstrap).

    Every sample is scored for all predictions, so the scores of two predictions are paired.

    Args:
        people: whose example each is, `(N,)`.
        labels: 0 or 1, `(N,)`.
        predictions: probabilities `(N,)` by name.
        score: a function from labels and probabilities to a score.
        samples: number of samples.

    Returns:
        By name of the predictions, the scores of the samples that have both labels.
    """
    _, index = np.unique(np.asarray(people), return_inverse=True)
    order = np.argsort(index, kind="stable")
    groups = np.split(order, np.cumsum(np.bincount(index))[:-1])
    rng = np.random.default_rng(0)
    scores: dict[str, list[float]] = {name: [] for name in predictions}
    for _ in range(samples):
        chosen = rng.integers(0, len(groups), len(groups))
        rows = np.concatenate([groups[i] for i in chosen])
        if len(np.unique(labels[rows])) < 2:
            continue
        for name, values in predictions.items():
            scores[name].append(score(labels[rows], values[rows]))
    return {name: np.array(values) for name, values in scores.items()}


def interval(samples: np.ndarray) -> tuple[float, float]:
    """Return the 2.5th and the 97.5th percentile."""
    low, high = np.percentile(samples, [2.5, 97.5])
    return float(low), float(high)
