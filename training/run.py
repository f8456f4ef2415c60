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
