"""Scores of probabilities of an outcome, and intervals by bootstrap over people."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

Score = Callable[[np.ndarray, np.ndarray], float]


def cross_entropy(labels: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the mean cross-entropy, in nats."""
    clipped = np.clip(np.asarray(probabilities, np.float64), 1e-7, 1 - 1e-7)
    return float(-np.mean(labels * np.log(clipped) + (1 - labels) * np.log(1 - clipped)))


def calibration_error(labels: np.ndarray, probabilities: np.ndarray, bins: int = 10) -> float:
    """Return the mean gap between the predicted and the true share, over bins of equal counts."""
    gaps = [
        abs(labels[part].mean() - probabilities[part].mean()) * len(part)
        for part in _bins(probabilities, bins)
    ]
    return float(np.sum(gaps) / len(labels))


def calibration_curve(
    labels: np.ndarray, probabilities: np.ndarray, bins: int = 10
) -> list[tuple[float, float]]:
    """Return the mean probability and the share that came true, of bins of equal counts."""
    return [
        (float(probabilities[part].mean()), float(labels[part].mean()))
        for part in _bins(probabilities, bins)
    ]


def _bins(probabilities: np.ndarray, bins: int) -> list[np.ndarray]:
    parts = np.array_split(np.argsort(probabilities, kind="stable"), bins)
    return [part for part in parts if len(part)]


def bootstrap_people(
    people: Sequence | np.ndarray,
    labels: np.ndarray,
    predictions: dict[str, np.ndarray],
    score: Score,
    *,
    samples: int = 300,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Score resampled people, each with all their examples (a cluster bootstrap).

    Every sample is scored for all predictions, so that differences of two are paired.

    Returns:
        The scores of the samples that have both labels, by name of the predictions.
    """
    _, index = np.unique(np.asarray(people), return_inverse=True)
    order = np.argsort(index, kind="stable")
    groups = np.split(order, np.cumsum(np.bincount(index))[:-1])
    rng = np.random.default_rng(seed)
    found: dict[str, list[float]] = {name: [] for name in predictions}
    for _ in range(samples):
        chosen = rng.integers(0, len(groups), len(groups))
        rows = np.concatenate([groups[i] for i in chosen])
        if len(np.unique(labels[rows])) < 2:
            continue
        for name, values in predictions.items():
            found[name].append(score(labels[rows], values[rows]))
    return {name: np.array(values) for name, values in found.items()}


def interval(samples: np.ndarray) -> tuple[float, float]:
    """Return the 2.5th and the 97.5th percentile."""
    low, high = np.percentile(samples, [2.5, 97.5])
    return float(low), float(high)
