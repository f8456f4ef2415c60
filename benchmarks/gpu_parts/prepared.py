"""Target tokens a second of `training.train`, on a run of drawn token ids."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from training.config.schema import Config
from training.data.read._manifest import Manifest, write_manifest
from training.data.tokens.store import END_ID, Sequences
from training.fit._prepared import train_prepared
from training.runs._origin import Origin, write_origin
from training.runs.files import RunFiles


def tokens_per_second(config: Config, vocabulary: int, length: int, steps: int) -> float:
    """Train for two epochs of `steps` batches; return the target tokens a second of the second.

    Every source has `length` tokens, and so has every target, its end counted.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = RunFiles(Path(folder))
        _prepare(files, config, vocabulary, length, steps)
        return train_prepared(files.path)["target_tokens_per_second"]


def _prepare(files: RunFiles, config: Config, vocabulary: int, length: int, steps: int) -> None:
    """Write what `training.prepare` leaves."""
    rng = np.random.default_rng(7)

    def sentences(count: int, length: int) -> Sequences:
        ids = rng.integers(END_ID + 1, vocabulary, count * length)
        return Sequences.of(ids, np.full(count, length))

    pairs, dev = steps * config.batch_size, config.batch_size
    files.tokens.mkdir()
    for name, count in (("train", pairs), ("dev", dev)):
        sentences(count, length).save(files.tokens, f"{name}.source")
        sentences(count, length - 1).save(files.tokens, f"{name}.target")
    write_manifest(files.tokens, Manifest(pairs, pairs, {}, "", {}))
    origin = Origin(config.data, "", pairs, 0, 0, dev, pairs * length, (vocabulary,) * 2, None)
    write_origin(files, origin)
    config.save(files.config)
