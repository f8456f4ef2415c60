"""Weights in a run directory: checkpoints, the best weights, recent weights and their mean."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from training.command.errors import RunError
from training.command.files import aside_of, check_space, read_json, replacing, write_json
from training.runs.files import Record, RunFiles, sha256

KEPT = 2  # checkpoints: if the newer is damaged, the older is loaded
_NOT_SAVED = "the model is not saved; train with a lower learning rate or clip_norm"
_WEIGHTS, _SEEDS, _PROGRESS = "training.weights.h5", "seeds.npz", "progress.json"


def save_checkpoint(files: RunFiles, model: keras.Model, history: list[Record]) -> None:
    """Write the checkpoint after the last epoch of the history.

    A checkpoint holds the weights, the optimizer's state, the states of dropout's random generators
    and the history. It is written under another name and renamed: after a crash it is either
    complete or missing, and the previous checkpoint is kept until the renaming.

    Raises RunError if a weight is not finite; then nothing is written.
    """
    check_finite(model, _NOT_SAVED)
    with replacing(files.checkpoint(len(history))) as aside:
        aside.mkdir(parents=True)
        _save(model, aside / _WEIGHTS)
        np.savez(aside / _SEEDS, *(ops.convert_to_numpy(seed) for seed in random_states(model)))
        digests = {name: sha256(aside / name) for name in (_WEIGHTS, _SEEDS)}
        progress = {"epoch": len(history), "history": history, "sha256": digests}
        write_json(aside / _PROGRESS, progress)
    for old in [*files.all_checkpoints().values()][:-KEPT]:
        shutil.rmtree(old)


def restore_checkpoint(files: RunFiles, model: keras.Model, writes: bool = True) -> list[Record]:
    """Load the last checkpoint into the compiled model; return the history up to it.

    If the last checkpoint is damaged, the previous one is loaded, with a warning on standard error.

    Args:
        files: the files of the run.
        model: the compiled model.
        writes: whether to write the history to the run's file, too.

    Returns:
        The history; empty if there is no checkpoint.

    Raises RunError if there are checkpoints but none can be read.
    """
    folders = [*files.all_checkpoints().values()]
    if not folders:
        return []
    for folder in reversed(folders):
        try:
            history = _restore(folder, model)
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            reason = (str(error).splitlines() or [""])[0]
            print(f"Warning: {folder} is damaged: {reason}", file=sys.stderr)
        else:
            if writes:  # a crash may have left an older history in the file
                write_json(files.history, history)
            return history
    raise RunError(f"no checkpoint in {files.checkpoints} can be read")


def check_finite(model: keras.Model, refusal: str) -> None:
    """Raise a RunError that ends with `refusal` if a weight of the model is not finite."""
    for weight in model.weights:
        # In NumPy, because a single one of several processes may call this.
        values = ops.convert_to_numpy(weight)
        if wrong := values.size - np.isfinite(values).sum():
            raise RunError(f"{wrong:,} values of {weight.path} are not finite: {refusal}")


def save_best(files: RunFiles, model: keras.Model) -> None:
    """Write the model's weights as the best weights of the run."""
    _save_weights(files, model, files.best)


def save_recent(files: RunFiles, epoch: int, model: keras.Model, count: int) -> None:
    """Write the model's weights after `epoch`; keep the weights of the last `count` epochs."""
    files.recent.mkdir(exist_ok=True)
    _save_weights(files, model, files.recent_weights(epoch))
    for old in [*files.all_recent_weights().values()][:-count]:
        old.unlink()


def load_average(files: RunFiles, model: keras.Model, epochs: Sequence[int]) -> None:
    """Load the mean of the weights that `save_recent` wrote after these epochs."""
    bare = _bare(model)
    mean: list[Any] = [0.0 for _ in model.weights]
    for epoch in epochs:
        file = files.recent_weights(epoch)
        files.check(file)
        bare.load_weights(file)
        pairs = zip(mean, model.weights, strict=True)
        mean = [m + ops.convert_to_numpy(w) / len(epochs) for m, w in pairs]
    for weight, m in zip(model.weights, mean, strict=True):
        if "int" not in weight.dtype:  # integer tables are equal in all epochs
            weight.assign(m)


def _restore(folder: Path, model: keras.Model) -> list[Record]:
    progress = read_json(folder / _PROGRESS)
    for name, digest in progress["sha256"].items():
        if sha256(folder / name) != digest:
            raise ValueError(f"{name} has another SHA-256 than when it was written")
    model.load_weights(folder / _WEIGHTS)
    with np.load(folder / _SEEDS) as seeds:
        for seed, value in zip(random_states(model), seeds.values(), strict=True):
            seed.assign(value)
    return progress["history"]


def random_states(model: keras.Model) -> list[keras.Variable]:
    """Return the states of the model's random generators: variables that are not weights."""
    others = {id(variable) for variable in (*model.weights, *model.metrics_variables)}
    return [variable for variable in model.variables if id(variable) not in others]


def _save_weights(files: RunFiles, model: keras.Model, file: Path) -> None:
    """Write the model's weights, without the optimizer's state, completely or not at all."""
    check_finite(model, _NOT_SAVED)
    aside = aside_of(file)
    _save(_bare(model), aside)
    files.replace_with_digest(aside, file)


def _save(model: keras.Model, file: Path) -> None:
    optimizer = getattr(model, "optimizer", None)
    variables = [*model.variables, *(optimizer.variables if optimizer else ())]
    size = sum(math.prod(each.shape) * 4 for each in variables)
    check_space(file.parent, size + size // 10 + (1 << 20))  # with a margin for HDF5
    model.save_weights(file)


def _bare(model: keras.Model) -> keras.Model:
    """Return the same model without its optimizer."""
    return keras.Model(model.input, model.output, name=model.name)
