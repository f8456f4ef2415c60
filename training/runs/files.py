"""The names of a run's files, which no other module knows."""

from __future__ import annotations

import re
from pathlib import Path

from training.command.files import LOCK, remove

SIDES = ("source", "target")


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
        digests: `digests.json`, SHA-256 of the weights and of what reads both sides.
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

    def clean(self) -> None:
        """Remove what a process that was killed had begun to write; the lock must be held."""
        for folder in (self.path, self.checkpoints, self.recent):
            for left in [*folder.glob("writing[-.]*"), *folder.glob("*.writing")]:
                remove(left)


def _by_epoch(folder: Path, ending: str = "") -> dict[int, Path]:
    """Files named by an epoch, by its number and in order; other names are passed over."""
    pattern = re.compile(rf"epoch-(\d+){re.escape(ending)}")
    found = ((pattern.fullmatch(file.name), file) for file in folder.glob("epoch-*"))
    return dict(sorted((int(match[1]), file) for match, file in found if match))
