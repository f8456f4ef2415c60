"""A run directory: its files, their SHA-256, its lock, and its history, one record for each epoch.

A resumed run has the same history as a run that never stopped. In this module, the argument `by` is
the configuration's `keep_epoch`.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from training.command.errors import RunError
from training.command.files import (
    LOCK,
    locked_folder,
    move,
    read_json,
    remove,
    remove_empty,
    write_json,
)
from training.config.schema import Config, changed_later, load_config
from training.metrics import METRICS, capped, deciding, is_best

SIDES = ("source", "target")


def sha256(file: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class RunFiles:
    """The files of a run."""

    def __init__(self, path: str | Path) -> None:
        self.path = path = Path(path)
        # the configuration, which is written last: a directory with this file is a run
        self.config = path / "config.toml"
        self.origin = path / "origin.json"  # facts about the start, see `training.runs._origin`
        # the tokenizers of source and target; only sides that are text have the file
        self.tokenizers = tuple(path / f"{side}.tokenizer" for side in SIDES)
        self.tokens = (
            path / "tokens"
        )  # token ids of the texts, see `training.data.tokens._prepared`
        # numbers for the training images or histories, by which `training.evaluate` finds them
        self.learned = path / "learned.npy"
        self.streamed = path / "writing-texts"  # token ids, while they are being written
        # the last checkpoints, from which training can resume; epoch 0 is before the first epoch
        self.checkpoints = path / "checkpoints"
        self.recent = path / "recent"  # weights of the last epochs, for the average
        # the weights of the epoch with the best dev score, or a better average of epochs
        self.best = path / "best.weights.h5"
        self.history = path / "history.json"  # one record an epoch
        # the scores of the last average, and of an earlier average whose weights are kept; deleted
        # when an epoch is better
        self.average = path / "average.json"
        # SHA-256 of the weights and of both sides' files: damaged files are rejected
        self.digests = path / "digests.json"
        self.card = path / "README.md"  # settings, figures and commands, for people
        self.curves = path / "curves.png"  # charts of the history
        self.heat_map = path / "attention.png"  # attention map of a dev sentence
        self.lock = path / LOCK  # held while a process writes to the run

    def all_sides(self) -> list[Path]:
        """Return the existing files of source and target: tokenizers, or columns of events."""
        return sorted(file for side in SIDES for file in self.path.glob(f"{side}.*"))

    def checkpoint(self, epoch: int) -> Path:
        """Return the folder of the checkpoint after `epoch`."""
        return self.checkpoints / f"epoch-{epoch:03d}"

    def recent_weights(self, epoch: int) -> Path:
        """Return the file of the weights after `epoch`, for the average."""
        return self.recent / f"epoch-{epoch:03d}.weights.h5"

    def all_checkpoints(self) -> dict[int, Path]:
        """Return the existing checkpoints by epoch, in order."""
        return _by_epoch(self.checkpoints)

    def all_recent_weights(self) -> dict[int, Path]:
        """Return the existing files of recent weights by epoch, in order."""
        return _by_epoch(self.recent, ".weights.h5")

    def write_digests(self) -> None:
        """Write the digests of a new run's tokenizers and sources, and discard all others."""
        write_json(self.digests, {file.name: [sha256(file)] for file in self.all_sides()})

    def replace_with_digest(self, aside: Path, file: Path) -> None:
        """Replace `file` by the file `aside`, and write the new digest.

        The digest of the replaced file is kept, too, because a crash may happen after the digest is
        written and before the file is replaced.
        """
        name = file.relative_to(self.path).as_posix()
        digests = {key: of for key, of in self._digests().items() if (self.path / key).exists()}
        digests[name] = [sha256(aside), *digests.get(name, [])][:2]
        write_json(self.digests, digests)
        move(aside, file)

    def check(self, file: Path) -> None:
        """Raise a RunError if a file does not have its digest; accept a file without a digest."""
        digest = sha256(file)  # before reading the digests, which training may update
        expected = self._digests().get(file.relative_to(self.path).as_posix())
        if expected and digest not in expected:
            raise RunError(
                f"{file} is damaged: its SHA-256 is {digest}, but {self.digests.name} has "
                f"{expected[0]}"
            )

    def _digests(self) -> dict[str, list[str]]:
        if not self.digests.is_file():
            return {}
        digests = read_json(self.digests)
        if not isinstance(digests, dict) or not all(isinstance(v, list) for v in digests.values()):
            raise RunError(f"{self.digests} is damaged: it must have lists of SHA-256")
        return digests

    def trained(self) -> Trained:
        """Return the configuration of a trained run.

        Raises RunError if the directory is not a run or has no finished epoch yet, and ConfigError
        if its configuration cannot be read.
        """
        if not self.config.is_file():
            below = sorted(self.path.glob(f"*/{self.config.name}"))
            hint = ". Make a run: python -m training.train"
            if below:
                hint = f". Did you mean {below[0].parent}?"
            raise RunError(f"{self.path} is not a run: it has no {self.config.name}{hint}")
        if not self.best.is_file():
            raise RunError(
                f"{self.path} has not finished an epoch ({self.best.name} is missing). Continue "
                f"it: python -m training.train --resume --output {self.path}"
            )
        return Trained(self.path, load_config(self.config))

    def begun(self, changes: Sequence[str] = ()) -> Config:
        """Return the configuration of a run to resume, with the settings `changes`.

        Raises RunError if there is no run, and ConfigError for a key that cannot change.
        """
        if not self.config.is_file():
            raise RunError(f"There is no run to continue: {self.config} does not exist")
        return changed_later(load_config(self.config), changes)

    def check_prepared(self) -> None:
        """Raise a RunError if `training.prepare` did not make the directory."""
        if not (self.config.is_file() and self.tokens.is_dir() and self.origin.is_file()):
            hint = f"{self.tokens.name} is missing; see training.prepare"
            raise RunError(f"{self.path} is not prepared: {hint}")

    def check_free(self) -> None:
        """Raise a RunError if the directory has a run, or files that a new run would replace."""
        checkpoints = self.all_checkpoints()
        trained = self.best.exists() or any(checkpoints)  # a checkpoint of epoch 0 is not trained
        if trained or (self.config.is_file() and not checkpoints):
            raise RunError(
                f"{self.path} already has a run. Continue it: python -m training.train --resume "
                f"--output {self.path}. Or choose another --output"
            )
        written = (self.card, self.checkpoints, self.recent, self.tokens, self.history)
        if others := [path for path in written if path.exists() and not self.digests.is_file()]:
            raise RunError(
                f"{others[0]} was not written by a run, and training would overwrite it. Choose "
                "another --output"
            )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the directory against other processes; make it if it does not exist.

        If this method made the directory and it has not become a run at the end, it is removed.
        Raises UserError if the directory cannot be made or written to, or another process holds its
        lock.
        """
        with locked_folder(self.path, self.path) as made:
            self._clean()
            try:
                yield
            finally:
                if not self.config.is_file():
                    self._clean()
                    self.lock.unlink(missing_ok=True)
                    remove_empty(made)

    def _clean(self) -> None:
        """Remove incomplete files of a process that was killed."""
        for folder in (self.path, self.checkpoints, self.recent):
            for rest in folder.glob("writing-*"):
                remove(rest)


class Trained(NamedTuple):
    """A trained run whose model is not loaded."""

    path: Path
    config: Config


def _by_epoch(folder: Path, ending: str = "") -> dict[int, Path]:
    """Return the files that are named after an epoch, by its number, in order; skip others."""
    pattern = re.compile(rf"epoch-(\d+){re.escape(ending)}")
    matches = ((pattern.fullmatch(file.name), file) for file in folder.glob("epoch-*"))
    return dict(sorted((int(match[1]), file) for match, file in matches if match))


Record = dict[str, float]
PERFECT_EPOCHS = 5  # training stops after so many in a row; the perplexity ranks them
PATIENCE = 0.5  # training stops after this share of all epochs without a better one
LEAST_PATIENCE = 20  # least number of epochs for PATIENCE


def read_history(file: Path) -> list[Record]:
    """Return the history of a run; raise a RunError if it is damaged."""
    history = read_json(file)
    records = isinstance(history, list) and all(isinstance(record, dict) for record in history)
    if not records or any("epoch" not in record for record in history):
        raise RunError(f"{file} is damaged: it must have a list of records with an epoch each")
    return history


def rank(record: Record, by: str = "auto") -> tuple[float, float]:
    """Return a pair to compare epochs by: the better the epoch, the greater the pair.

    The pair is the epoch's score and minus its perplexity or dev loss. With "last", the score is
    the epoch's number, infinite for a mean of epochs, and the second number is 0. With
    "best_perplexity", it is minus the perplexity. Otherwise it is the first text metric of METRICS
    that the record has; without such a metric, it is minus the perplexity or dev loss.
    """
    if by == "last":
        return record.get("epoch", math.inf), 0.0
    loss = record.get("val_perplexity", record.get("val_loss", 0.0))
    name = None if by == "best_perplexity" else deciding(record)
    if not name:
        return -loss, -loss
    return METRICS[name].key(record.get(capped(name), record[name])), -loss


def best(history: Sequence[Record], by: str = "auto") -> Record:
    """Return the record with the best score; at equal scores, with the lowest perplexity."""
    return max(history, key=lambda record: rank(record, by))


def reason_to_stop(history: Sequence[Record], config: Config) -> str | None:
    """Return why training stops: "" if all epochs are done; None if training continues.

    Training stops early after PERFECT_EPOCHS epochs in a row without an error on the dev set. It
    also stops if PATIENCE of all planned epochs, and at least LEAST_PATIENCE epochs, have passed
    since the best epoch. With `keep_epoch = "last"`, it never stops early.
    """
    done = len(history)
    if done >= config.epochs:
        return ""
    if not history or config.keep_epoch == "last":
        return None
    if done >= PERFECT_EPOCHS and all(map(is_best, history[-PERFECT_EPOCHS:])):
        return f"All of dev has been right for {PERFECT_EPOCHS} epochs"
    best_epoch = int(best(history, config.keep_epoch)["epoch"])
    if done - best_epoch >= max(LEAST_PATIENCE, PATIENCE * config.epochs):
        return f"No epoch has been better than epoch {best_epoch} for {done - best_epoch} epochs"
    return None


def kept(files: RunFiles) -> dict[str, Any]:
    """Return the record of the kept weights; a mean's record has `epochs`, not `epoch`."""
    if average := kept_average(files):
        return average
    history = read_history(files.history)
    if not history:
        raise RunError(f"{files.history} has no epoch")
    return dict(best(history, load_config(files.config).keep_epoch))


def kept_average(files: RunFiles) -> dict[str, Any] | None:
    """Return the record of the mean whose weights are kept; None if an epoch's weights are."""
    if not files.average.is_file():
        return None
    tried = read_json(files.average)
    earlier: dict[str, Any] | None = tried.pop("earlier", None)
    return tried if tried.pop("kept") else earlier


def summary(files: RunFiles) -> dict[str, Any]:
    """Return the summary of a training: the run, its epochs, and the kept record."""
    return {"run": str(files.path), "epochs_done": len(read_history(files.history)), **kept(files)}
