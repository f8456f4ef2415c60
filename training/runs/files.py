"""A run directory: the names of its files, its lock, and their SHA-256."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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

SIDES = ("source", "target")


def sha256(file: Path) -> str:
    """Return the digest of a file."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


class RunFiles:
    """The files of a run.

    Attributes:
        path: the run directory.
        config: the configuration, `config.toml`. A directory with it is a run: it is written last.
        origin: what the run began with, `origin.json`, see `training.runs.origin`.
        tokenizers: `source.tokenizer` and `target.tokenizer`, of the sides that are text.
        tokens: token ids of the texts, `tokens/`, see `training.runs.tokens`.
        streamed: where texts become token ids when the run begins.
        checkpoints: `checkpoints/epoch-003/`: what training needs to go on, the last two; epoch 0
            is what it starts from.
        recent: `recent/epoch-003.weights.h5`: weights that are to be averaged.
        best: `best.weights.h5`, the weights of the epoch with the best dev score, or of a better
            average.
        history: `history.json`, one record an epoch.
        average: `average.json`, the score of the last average that was tried, and of an earlier
            one that is kept; gone once an epoch is better.
        digests: `digests.json`, SHA-256 of the weights and of what reads both sides: damaged files
            are not used.
        card: `README.md`, what the run is, for people.
        curves: `curves.png`, the history as a picture.
        tensorboard: what TensorBoard reads.
        lock: held while a process writes to the run.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = path = Path(path)
        self.config = path / "config.toml"
        self.origin = path / "origin.json"
        self.tokenizers = tuple(path / f"{side}.tokenizer" for side in SIDES)
        self.tokens = path / "tokens"
        self.streamed = path / "writing-texts"
        self.checkpoints = path / "checkpoints"
        self.recent = path / "recent"
        self.best = path / "best.weights.h5"
        self.history = path / "history.json"
        self.average = path / "average.json"
        self.digests = path / "digests.json"
        self.card = path / "README.md"
        self.curves = path / "curves.png"
        self.tensorboard = path / "tensorboard"
        self.lock = path / LOCK

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
            raise RunError(
                f"{file} is damaged: expected the SHA-256 of {self.digests.name}, {expected[0]}. "
                f"Received: {digest}"
            )

    def _digests(self) -> dict[str, list[str]]:
        if not self.digests.is_file():
            return {}
        digests = read_json(self.digests)
        if not isinstance(digests, dict) or not all(isinstance(v, list) for v in digests.values()):
            raise RunError(f"cannot read {self.digests}: expected lists of SHA-256")
        return digests

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the directory if need be, and let no other process write to it.

        A directory that was made here and has not become a run by then is removed.

        Raises:
            UserError: the directory cannot be made or written to, or is another process's.
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
        """Remove what a process that was killed had begun to write."""
        for folder in (self.path, self.checkpoints, self.recent):
            for rest in folder.glob("writing-*"):
                remove(rest)


def _by_epoch(folder: Path, ending: str = "") -> dict[int, Path]:
    """Files named by an epoch, by its number and in order; other names are passed over."""
    pattern = re.compile(rf"epoch-(\d+){re.escape(ending)}")
    matches = ((pattern.fullmatch(file.name), file) for file in folder.glob("epoch-*"))
    return dict(sorted((int(match[1]), file) for match, file in matches if match))
