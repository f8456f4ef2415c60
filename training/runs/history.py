"""A run's history, one record for each epoch, and the record of the weights that are kept.

A resumed run has the same history as one that never stopped. `by` is the configuration's `keep_by`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from training.command.errors import RunError
from training.command.files import read_json
from training.config.load import load_config
from training.config.schema import Config
from training.metrics import METRICS, deciding
from training.runs.files import RunFiles

Record = dict[str, float]
PERFECT_EPOCHS = 5  # in a row, after which training stops: the perplexity chooses among them
PATIENCE = 0.5  # share of all epochs, after which training stops where none has been better
LEAST_PATIENCE = 20  # epochs


def read_history(file: Path) -> list[Record]:
    """Read the history of a run; a RunError where it is damaged."""
    history = read_json(file)
    records = isinstance(history, list) and all(isinstance(record, dict) for record in history)
    if not records or any("epoch" not in record for record in history):
        raise RunError(f"cannot read {file}: expected a list of records with an epoch each")
    return history


def rank(record: Record, by: str = "auto") -> tuple[float, float]:
    """Return what is greater for a better epoch: the score of `by`, then minus the perplexity.

    By "perplexity" it is that alone, by "last" the number of the epoch; a mean of epochs, which has
    none, comes after all. Otherwise it is the first figure of `training.metrics` that
    the record has, or the cross-entropy of a label; where nothing was translated, the perplexity.
    """
    if by == "last":
        return record.get("epoch", math.inf), 0.0
    loss = record.get("val_perplexity", record.get("val_loss", 0.0))
    name = None if by == "perplexity" else deciding(record)
    return (METRICS[name].key(record[name]) if name else -loss), -loss


def best(history: Sequence[Record], by: str = "auto") -> Record:
    """Return the record with the best score; of several the one with the least perplexity."""
    return max(history, key=lambda record: rank(record, by))


def reason_to_stop(history: Sequence[Record], config: Config) -> str | None:
    """Return why a training needs no more epochs, "" where all are done; None where it goes on.

    It stops before where dev has been all right for PERFECT_EPOCHS, and where the best epoch is
    half of all planned epochs ago, and LEAST_PATIENCE at least; with `keep_by = "last"` at the end
    alone, for the dev set decides nothing then.
    """
    done = len(history)
    if done >= config.epochs:
        return ""
    if not history or config.keep_by == "last":
        return None
    if done >= PERFECT_EPOCHS and all(map(_is_perfect, history[-PERFECT_EPOCHS:])):
        return f"All of dev has been right for {PERFECT_EPOCHS} epochs"
    best_epoch = int(best(history, config.keep_by)["epoch"])
    if done - best_epoch >= max(LEAST_PATIENCE, PATIENCE * config.epochs):
        return f"No epoch has been better than epoch {best_epoch} for {done - best_epoch} epochs"
    return None


def _is_perfect(record: Record) -> bool:
    name = deciding(record)
    return name is not None and record[name] == (100 if METRICS[name].better == "higher" else 0)


def kept(files: RunFiles) -> dict[str, Any]:
    """Return the record of the weights that are kept.

    That is the best epoch's, or, with `epochs` in place of `epoch`, that of the mean of several.
    """
    if average := kept_average(files):
        return average
    history = read_history(files.history)
    if not history:
        raise RunError(f"{files.history} has no epoch")
    return dict(best(history, load_config(files.config).keep_by))


def kept_average(files: RunFiles) -> dict[str, Any] | None:
    """Return the record of the mean weights that are kept; None where an epoch's are.

    An earlier mean is still kept where the last one was worse.
    """
    if not files.average.is_file():
        return None
    tried = read_json(files.average)
    earlier: dict[str, Any] | None = tried.pop("earlier", None)
    return tried if tried.pop("kept") else earlier


def summary(files: RunFiles) -> dict[str, Any]:
    """Return the summary of a training: the run, its epochs, and the record that is kept."""
    return {"run": str(files.path), "epochs_done": len(read_history(files.history)), **kept(files)}
