"""A run directory: its files, their SHA-256, its lock, and its history, one record for each epoch.

A resumed run has the same history as one that never stopped. `by` is the configuration's `keep_by`.
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
from training.metrics import METRICS, deciding

SIDES = ("source", "target")


def sha256(file: Path) -> str:
    """Return the digest of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class RunFiles:
    """The files of a run."""

    def __init__(self, path: str | Path) -> None:
        self.path = path = Path(path)
        # the configuration. A directory with it is a run: it is written last
        self.config = path / "config.toml"
        self.origin = path / "origin.json"  # what the run began with, see `training.runs.origin`
        # of the sides that are text
        self.tokenizers = tuple(path / f"{side}.tokenizer" for side in SIDES)
        self.tokens = path / "tokens"  # token ids of the texts, see `training.data.prepared`
        self.streamed = path / "writing-texts"  # where texts become token ids when the run begins
        # the last two states that training can go on from; epoch 0 is the beginning
        self.checkpoints = path / "checkpoints"
        self.recent = path / "recent"  # weights that are to be averaged
        # the weights of the epoch with the best dev score, or of a better average
        self.best = path / "best.weights.h5"
        self.history = path / "history.json"  # one record an epoch
        # the score of the last average that was tried, and of an earlier one that is kept; gone
        # once an epoch is better
        self.average = path / "average.json"
        # SHA-256 of the weights and of both sides' readers: damaged files are refused
        self.digests = path / "digests.json"
        self.card = path / "README.md"  # settings, figures and commands, for people
        self.curves = path / "curves.png"  # the history as a picture
        self.heat_map = path / "attention.png"  # where the decoder looks in a sentence of dev
        self.lock = path / LOCK  # held while a process writes to the run

    def all_sides(self) -> list[Path]:
        """Return the files of tokenizers and of other sources."""
        return sorted(file for side in SIDES for file in self.path.glob(f"{side}.*"))

    def checkpoint(self, epoch: int) -> Path:
        """Return the folder of the checkpoint after `epoch`."""
        return self.checkpoints / f"epoch-{epoch:03d}"

    def recent_weights(self, epoch: int) -> Path:
        """Return the file of the weights after `epoch`, for the average."""
        return self.recent / f"epoch-{epoch:03d}.weights.h5"

    def all_checkpoints(self) -> dict[int, Path]:
        """Return the checkpoints that are there by their epochs, in order."""
        return _by_epoch(self.checkpoints)

    def all_recent_weights(self) -> dict[int, Path]:
        """Return the recent weights that are there by their epochs, in order."""
        return _by_epoch(self.recent, ".weights.h5")

    def write_digests(self) -> None:
        """Write the digests of a new run's files, and of no others."""
        write_json(self.digests, {file.name: [sha256(file)] for file in self.all_sides()})

    def put(self, aside: Path, file: Path) -> None:
        """Give a file that was written aside its name, and write its digest.

        The digest of the file before stays beside it, for a crash may come between the two.
        """
        name = file.relative_to(self.path).as_posix()
        digests = {key: of for key, of in self._digests().items() if (self.path / key).exists()}
        digests[name] = [sha256(aside), *digests.get(name, [])][:2]
        write_json(self.digests, digests)
        move(aside, file)

    def check(self, file: Path) -> None:
        """Raise a RunError for a file that is damaged; one without a digest is not looked at."""
        digest = sha256(file)  # first: training may go on meanwhile
        expected = self._digests().get(file.relative_to(self.path).as_posix())
        if expected and digest not in expected:
            wanted = f"the SHA-256 of {self.digests.name}, {expected[0]}"
            raise RunError.expected(f"{file} is damaged:", wanted, digest)

    def _digests(self) -> dict[str, list[str]]:
        if not self.digests.is_file():
            return {}
        digests = read_json(self.digests)
        if not isinstance(digests, dict) or not all(isinstance(v, list) for v in digests.values()):
            raise RunError(f"cannot read {self.digests}: expected lists of SHA-256")
        return digests

    def trained(self) -> Trained:
        """Return the configuration of a trained run.

        Raises RunError where the directory is not a run or has no finished epoch yet, and
        ConfigError where its configuration cannot be read.
        """
        if not self.config.is_file():
            below = sorted(self.path.glob(f"*/{self.config.name}"))
            hint = "; python -m training.train makes one"
            if below:
                hint = f". Did you mean {below[0].parent}?"
            raise RunError(f"{self.path} is not a run: it has no {self.config.name}{hint}")
        if not self.best.is_file():
            raise RunError(f"{self.path} has no trained weights yet: {self.best.name} is missing")
        return Trained(self.path, load_config(self.config))

    def begun(self, changes: Sequence[str] = ()) -> Config:
        """Return the configuration of a run that is to go on, with the settings `changes`.

        Raises RunError where there is no run, and ConfigError for a key that cannot change.
        """
        if not self.config.is_file():
            raise RunError(f"nothing to resume: {self.config} does not exist")
        return changed_later(load_config(self.config), changes)

    def check_prepared(self) -> None:
        """Raise a RunError where `training.prepare` did not make the directory."""
        if not (self.config.is_file() and self.tokens.is_dir() and self.origin.is_file()):
            hint = f"{self.tokens.name} is missing; see training.prepare"
            raise RunError(f"{self.path} is not prepared: {hint}")

    def check_free(self) -> None:
        """Refuse a directory that holds anything trained or prepared, or files of these names."""
        checkpoints = self.all_checkpoints()
        trained = self.best.exists() or any(checkpoints)  # epoch 0 is not trained
        if trained or (self.config.is_file() and not checkpoints):
            hint = "go on with it by training.train --resume, or choose another --output"
            raise RunError(f"{self.path} holds a run already: {hint}")
        written = (self.card, self.checkpoints, self.recent, self.tokens, self.history)
        if others := [path for path in written if path.exists() and not self.digests.is_file()]:
            raise RunError(f"{others[0]} is no run's, and would be lost: choose another --output")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the directory if need be, and let no other process write to it.

        A directory that was made here and has not become a run by then is removed. Raises UserError
        where the directory cannot be made or written to, or is another process's.
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
        """Remove files that a process that was killed had begun to write."""
        for folder in (self.path, self.checkpoints, self.recent):
            for rest in folder.glob("writing-*"):
                remove(rest)


class Trained(NamedTuple):
    """A trained run that is not loaded."""

    path: Path
    config: Config


def _by_epoch(folder: Path, ending: str = "") -> dict[int, Path]:
    """Files named by an epoch, by its number and in order; other names are passed over."""
    pattern = re.compile(rf"epoch-(\d+){re.escape(ending)}")
    matches = ((pattern.fullmatch(file.name), file) for file in folder.glob("epoch-*"))
    return dict(sorted((int(match[1]), file) for match, file in matches if match))


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
    """Return a pair that is greater for a better epoch: the score of `by`, minus the perplexity.

    By "perplexity" the score is minus the perplexity; by "last" it is the epoch's number, infinite
    for a mean of epochs. Otherwise it is the first figure of `training.metrics` that
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

    It stops early after PERFECT_EPOCHS epochs with all of dev right, and where the best epoch is
    PATIENCE of all planned epochs ago, at least LEAST_PATIENCE; with `keep_by = "last"` never.
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
    """Return the record of the kept weights; that of a mean has `epochs` in place of `epoch`."""
    if average := kept_average(files):
        return average
    history = read_history(files.history)
    if not history:
        raise RunError(f"{files.history} has no epoch")
    return dict(best(history, load_config(files.config).keep_by))


def kept_average(files: RunFiles) -> dict[str, Any] | None:
    """Return the record of the kept mean, the last or an earlier one; None where none is."""
    if not files.average.is_file():
        return None
    tried = read_json(files.average)
    earlier: dict[str, Any] | None = tried.pop("earlier", None)
    return tried if tried.pop("kept") else earlier


def summary(files: RunFiles) -> dict[str, Any]:
    """Return the summary of a training: the run, its epochs, and the record that is kept."""
    return {"run": str(files.path), "epochs_done": len(read_history(files.history)), **kept(files)}
