"""The result of a run: the epoch that is kept, and its figures."""

from __future__ import annotations

from typing import Any

from training.command.errors import RunError
from training.command.files import read_json
from training.config.load import load_config
from training.runs.files import RunFiles
from training.runs.history import best, read_history


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
