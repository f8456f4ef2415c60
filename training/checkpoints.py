"""What a run directory keeps of training: checkpoints, best and recent weights, their mean."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import keras


def save_checkpoint(path: Path, epoch: int, model: keras.Model, history: list[dict]) -> None:
    """Keep all that training needs to go on after `epoch`, and drop older checkpoints.

    Written aside and renamed, so that a crash leaves the old one or the new one, never half of one.
    """
    folder = path / "checkpoints"
    aside = folder / f"writing-{os.getpid()}"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    model.save_weights(aside / "training.weights.h5")
    (aside / "progress.json").write_text(json.dumps({"epoch": epoch, "history": history}))
    final = folder / f"epoch-{epoch:03d}"
    shutil.rmtree(final, ignore_errors=True)
    aside.rename(final)
    for old in _checkpoints(path)[:-1]:
        shutil.rmtree(old)


def restore_checkpoint(path: Path, model: keras.Model) -> list[dict]:
    """Load the last checkpoint into the compiled model; return the history up to it.

    An empty history means that there is none yet.
    """
    found = _checkpoints(path)
    if not found:
        return []
    model.optimizer.build(model.trainable_variables)
    model.load_weights(found[-1] / "training.weights.h5")
    return json.loads((found[-1] / "progress.json").read_text())["history"]


def save_best(path: Path, model: keras.Model) -> None:
    """Keep the model's weights as the best of the run."""
    _save_weights(path, model, path / "best.weights.h5")


def save_recent(path: Path, epoch: int, model: keras.Model, count: int) -> None:
    """Keep the model's weights after `epoch`, and those of `count` epochs in all."""
    (path / "recent").mkdir(exist_ok=True)
    _save_weights(path, model, path / "recent" / f"epoch-{epoch:03d}.weights.h5")
    for old in [*_recent(path).values()][:-count]:
        old.unlink()


def load_average(path: Path, model: keras.Model) -> list[int]:
    """Load the mean of the weights that `save_recent` has kept; return their epochs."""
    files, bare = _recent(path), _bare(model)
    mean = [0.0 for _ in model.weights]
    for file in files.values():
        bare.load_weights(file)
        mean = [m + w.numpy() / len(files) for m, w in zip(mean, model.weights, strict=True)]
    for weight, m in zip(model.weights, mean, strict=True):
        weight.assign(m)
    return list(files)


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    aside = path.with_name(f"{path.name}.writing")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)


def _save_weights(path: Path, model: keras.Model, file: Path) -> None:
    """Write the model's weights, without the optimizer's, whole or not at all."""
    aside = path / "writing.weights.h5"
    _bare(model).save_weights(aside)
    aside.replace(file)


def _bare(model: keras.Model) -> keras.Model:
    """Return the same model without its optimizer."""
    return keras.Model(model.input, model.output, name=model.name)


def _recent(path: Path) -> dict[int, Path]:
    return _by_epoch(path / "recent", ".weights.h5")


def _checkpoints(path: Path) -> list[Path]:
    return list(_by_epoch(path / "checkpoints").values())


def _by_epoch(folder: Path, ending: str = "") -> dict[int, Path]:
    """What is named by an epoch, by its number and in order; other names are passed over."""
    pattern = re.compile(rf"epoch-(\d+){re.escape(ending)}")
    found = ((pattern.fullmatch(file.name), file) for file in folder.glob("epoch-*"))
    return dict(sorted((int(match[1]), file) for match, file in found if match))
