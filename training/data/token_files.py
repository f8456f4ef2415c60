"""Token ids as plain arrays: written a block at a time, read where they lie.

Of each side of a split there are two files, little-endian: all ids one sentence after another, and
where each sentence begins. They are mapped into memory: nothing is read before it is needed.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from training.data.ids import PAD_ID
from training.data.pair_files import CorpusError
from training.data.store import SIDES, Sequences

_LONGEST = 1 << 10  # tokens; longer sentences are counted as of this length


def ids_dtype(vocab_size: int) -> np.dtype:
    """Return the smallest type that holds the ids of a vocabulary."""
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


class Writer:
    """The two files of a side, written a block at a time."""

    def __init__(self, folder: Path, split: str, side: str) -> None:
        self.names = _names(split, side)
        self._files = [(folder / name).open("wb") for name in self.names]
        self._digests = [hashlib.sha256() for _ in self.names]
        self._histogram = np.zeros(_LONGEST + 1, np.int64)
        self._tokens, self._longest, self._dtype = 0, 0, np.dtype("<u2")
        self._write(1, np.zeros(1, "<i8"))

    def add(self, ids: np.ndarray, lengths: np.ndarray) -> None:
        """Append the sentences of a block: their ids `(tokens,)`, as `ids_dtype`, and lengths."""
        self._dtype = ids.dtype
        self._write(0, ids)
        self._write(1, (self._tokens + np.cumsum(lengths)).astype("<i8"))
        self._tokens += ids.size
        self._longest = max(self._longest, int(lengths.max(initial=0)))
        self._histogram += np.bincount(np.minimum(lengths, _LONGEST), minlength=_LONGEST + 1)

    def close(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return what a manifest says of the side, and the digests of its files."""
        self._write(0, np.array([PAD_ID], self._dtype))  # which batches are padded with
        for file in self._files:
            file.close()
        cumulative = np.cumsum(self._histogram)
        at = {
            f"{percent} %": int(np.searchsorted(cumulative, cumulative[-1] * percent / 100))
            for percent in (50, 95, 99)
        }
        said = {
            "tokens": self._tokens,
            "dtype": self._dtype.str,
            "lengths": {"longest": self._longest, **at},
        }
        digests = [digest.hexdigest() for digest in self._digests]
        return said, dict(zip(self.names, digests, strict=True))

    def _write(self, which: int, values: np.ndarray) -> None:
        data = values.tobytes()
        self._files[which].write(data)
        self._digests[which].update(data)


def write_sides(folder: Path, split: str, sides: tuple[Sequences, Sequences]) -> dict[str, Any]:
    """Write both sides of a split; return what a manifest says of them, by their names."""
    said = {}
    for side, sentences in zip(SIDES, sides, strict=True):
        ids = sentences.values
        writer = Writer(folder, split, side)
        writer.add(ids.astype(ids_dtype(int(ids.max(initial=0)) + 1)), sentences.lengths)
        said[side], _ = writer.close()
    return said


def read_sides(
    folder: Path, split: str, said: Mapping[str, Any], limit: int = 0, seed: int = 0
) -> tuple[Sequences, Sequences]:
    """Return the token ids of both sides, or of `limit` pairs drawn at random, in order.

    They are the pairs that `training.data.pair_files.sample` draws of the texts.
    """
    source, target = (
        _map(folder, split, side, np.dtype(said[side]["dtype"]), limit, seed) for side in SIDES
    )
    return source, target


def check_sizes(folder: Path, sizes: Mapping[str, int]) -> None:
    """Raise a CorpusError where a file is missing or has another size than it had."""
    for name, size in sizes.items():
        there = folder / name
        if not there.is_file() or there.stat().st_size != size:
            raise CorpusError(f"{there} is missing or damaged: expected {size:,} bytes")


def _map(folder: Path, split: str, side: str, dtype: np.dtype, limit: int, seed: int) -> Sequences:
    # memmap's own indexing is slow, and nothing of it is needed.
    ids, starts = (
        np.asarray(np.memmap(folder / name, kind, "c"))
        for name, kind in zip(_names(split, side), (dtype, np.dtype("<i8")), strict=True)
    )
    lengths, starts = np.diff(starts).astype(np.int32), starts[:-1]
    if limit and limit < lengths.size:
        rows = np.array(sorted(random.Random(seed).sample(range(lengths.size), limit)))
        return Sequences(ids, starts[rows], lengths[rows])
    return Sequences(ids, starts, lengths)


def _names(split: str, side: str) -> list[str]:
    return [f"{split}.{side}.{what}" for what in ("ids", "starts")]
