"""Scores of runs that predict an outcome."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from training.command.errors import UserError
from training.decode.labels import make_predictor
from training.metrics import METRICS, OF_OUTCOMES
from training.runs.run import Run
from training.score import labels as scores
from training.score.label_baselines import BASELINES, last_known
from training.sources.events.histories import Histories

SCORES = {name: METRICS[name].score for name in OF_OUTCOMES}


def evaluate_labels(
    runs: Sequence[Run],
    data: Histories,
    *,
    train: Histories | None = None,
    bootstrap: bool = False,
    figure: Path | None = None,
) -> dict[str, Any]:
    """Score the probabilities that runs give, or their mean.

    Args:
        runs: one or several.
        data: the examples.
        train: examples to fit the baselines on, which are scored beside the runs; none for None.
        bootstrap: whether to add 95 % intervals, by resampling people with all their examples.
        figure: where the calibration is drawn, a PNG, if anywhere.

    Returns:
        `auc`, `auprc`, `cross_entropy`, `calibration_error`; with `train` the same two for each
        baseline and each published score, `NAME_auc`; `examples`, `people`, `positive`, `seconds`.

    Raises:
        UserError: `bootstrap` or the baselines have too few examples, or all of one outcome.
    """
    positive = int(data.labels.sum())
    if bootstrap and positive in (0, len(data.labels)):
        raise UserError(
            "--bootstrap expected examples of both outcomes. "
            f"Received: {positive} of {len(data.labels)} examples came true"
        )
    predict = make_predictor(runs)
    started = time.perf_counter()
    probabilities = predict(data).probabilities
    seconds = time.perf_counter() - started
    found = {"": probabilities}
    if train is not None:
        x, numbers = last_known(train), last_known(data)
        for name, fit in BASELINES.items():
            found[f"{name}_"] = fit(x, train.labels, train.people)(numbers)
        found |= {f"{name}_": values for name, values in data.scores.items()}
    result: dict[str, Any] = {}
    for key, score in SCORES.items():
        for name, values in found.items():
            result[f"{name}{key}"] = score(data.labels, values)
        if bootstrap:
            samples = scores.bootstrap_people(data.people, data.labels, found, score)
            for name, values in samples.items():
                result[f"{name}{key}_interval"] = scores.interval(values)
    result["cross_entropy"] = scores.cross_entropy(data.labels, probabilities)
    result["calibration_error"] = scores.calibration_error(data.labels, probabilities)
    if figure is not None:
        draw_calibration({"this run": (data.labels, probabilities)}, figure)
    return {
        **result,
        "examples": len(data.labels),
        "people": len(np.unique(data.people)),
        "positive": positive,
        "seconds": round(seconds, 1),
    }


def draw_calibration(predictions: dict[str, tuple[np.ndarray, np.ndarray]], path: Path) -> None:
    """Draw labels and probabilities by name: how often came true what was said, in tenths."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.5, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    for name, (labels, probabilities) in predictions.items():
        said, came = zip(*scores.calibration_curve(labels, probabilities), strict=True)
        axes.plot(said, came, marker=".", label=name)
    axes.set_xlabel("probability said, mean of a tenth")
    axes.set_ylabel("share that came true")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)
