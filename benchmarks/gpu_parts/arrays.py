"""Target tokens a second of `training.train_arrays`, on a run of drawn token ids."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from training.config.schema import Config
from training.data.ids import END_ID
from training.data.store import Sequences
from training.data.token_files import write_sides
from training.fit.arrays import train_arrays
from training.runs.files import RunFiles
from training.runs.origin import Origin, write_origin
from training.runs.tokens import keep_tokens, write_tokens


def tokens_per_second(config: Config, vocabulary: int, length: int, steps: int) -> float:
    """Train for two epochs of `steps` batches; return the target tokens a second of the second.

    Every source has `length` tokens, and so has every target, its end counted.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = RunFiles(Path(folder))
        _prepare(files, config, vocabulary, length, steps)
        return train_arrays(files.path)["target_tokens_per_second"]


def _prepare(files: RunFiles, config: Config, vocabulary: int, length: int, steps: int) -> None:
    """Write what `training.prepare` leaves."""
    rng = np.random.default_rng(7)

    def sentences(count: int, length: int) -> Sequences:
        ids = rng.integers(END_ID + 1, vocabulary, count * length)
        return Sequences.of(ids, np.full(count, length))

    pairs, dev = steps * config.batch_size, config.batch_size
    train = sentences(pairs, length), sentences(pairs, length - 1)
    with tempfile.TemporaryDirectory() as folder:
        said = write_sides(Path(folder), "train", train)
        both = sentences(dev, length), sentences(dev, length - 1)
        write_tokens(files, "", both, train=(Path(folder), said))
    keep_tokens(files)
    origin = Origin(config.data, "", pairs, 0, 0, dev, pairs * length, (vocabulary,) * 2, None)
    write_origin(files, origin)
    config.save(files.config)
