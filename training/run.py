"""The run directory: one run's configuration, tokenizers, checkpoints and history.

config.toml  source.tokenizer  target.tokenizer
checkpoints/epoch-003/   weights.weights.h5, optimizer.npz, progress.json: what --resume needs
recent/epoch-003.weights.h5   the weights of the last epochs, where they are to be averaged
best.weights.h5          the weights of the epoch with the best dev score, or better average
history.json             one record an epoch
average.json             the average's score
tensorboard/
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import keras

from training.config import Config, load_config
from training.errors import UserError
from training.model import build_seq2seq
from training.text import Tokenizer, load_tokenizer

SIDES = ("source", "target")


class RunError(UserError):
    """A run directory that cannot be used as asked."""


@dataclass(frozen=True)
class Run:
    """A trained model with all that is needed to use it."""

    path: Path
    config: Config
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    model: keras.Model


def load_run(path: str | Path) -> Run:
    """Load a run with its best weights.

    Raises:
        RunError: if the directory is not a run, or has no finished epoch yet.
    """
    path = Path(path)
    if not (path / "config.toml").is_file():
        raise RunError(f"{path} is not a run: it has no config.toml")
    weights = path / "best.weights.h5"
    if not weights.is_file():
        raise RunError(f"{path} has no trained weights yet: {weights.name} is missing")
    config = load_config(path / "config.toml")
    source, target = load_tokenizers(path)
    # Cells without dropout run faster, and draw nothing at random in an export.
    to_use = dataclasses.replace(config, variational_dropout=0.0)
    model = build_seq2seq(to_use, source.vocab_size, target.vocab_size)
    try:
        model.load_weights(weights)
    except (OSError, ValueError) as error:
        raise RunError(f"cannot read {weights}: {str(error).splitlines()[0]}") from error
    return Run(path, config, source, target, model)


def load_ensemble(paths: Sequence[str | Path]) -> list[Run]:
    """Load runs that are to be used together.

    Raises:
        RunError: as `load_run`, and if their tokenizers differ.
    """
    runs = [load_run(path) for path in paths]
    for run in runs[1:]:
        for side in SIDES:
            name = f"{side}.tokenizer"
            if (run.path / name).read_bytes() != (runs[0].path / name).read_bytes():
                raise RunError(f"{run.path} and {runs[0].path} have different {side} tokenizers")
    return runs


def load_tokenizers(path: str | Path) -> tuple[Tokenizer, Tokenizer]:
    """Load the source and the target tokenizer of a run."""
    try:
        return tuple(load_tokenizer(Path(path) / f"{side}.tokenizer") for side in SIDES)
    except (OSError, ValueError, KeyError) as error:
        raise RunError(f"cannot read the tokenizers of {path}: {error}") from error


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
