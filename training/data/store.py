"""Many sequences of token ids, in three arrays that are written block by block and mapped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from training.data.rules import END_ID, PAD_ID, START_ID, UNK_ID  # noqa: F401

SIDES = ("source", "target")
TOGETHER = 8192  # texts that are encoded at a time
ARRAYS = ("values", "starts", "lengths")
Ids = tuple[np.ndarray, np.ndarray]  # of texts, one after another, and how many each has


@dataclass(frozen=True)
class Sequences:
    """Many sequences, of token ids or of events."""

    values: np.ndarray  # steps of all, `(steps, …)`
    starts: np.ndarray  # int64 `(n,)`, where each begins
    lengths: np.ndarray  # int32 `(n,)`, steps of each
    padding: float = PAD_ID  # what batches are padded with

    @classmethod
    def of(cls, values: np.ndarray, lengths: np.ndarray) -> Sequences:
        """Make sequences of their values, one after another, and their lengths."""
        lengths = np.asarray(lengths, np.int32)
        return cls(np.asarray(values), np.cumsum(lengths, dtype=np.int64) - lengths, lengths)

    @classmethod
    def open(cls, folder: Path, name: str) -> Sequences:
        """Map the arrays of a folder into memory; nothing is read before it is needed.

        Raises OSError, ValueError where a file is missing or damaged.
        """
        values, starts, lengths = (
            np.asarray(np.load(folder / f"{name}.{array}.npy", mmap_mode="r")) for array in ARRAYS
        )
        return cls(values, starts, lengths)

    def save(self, folder: Path, name: str) -> None:
        """Write the arrays of a folder."""
        writer = SequenceWriter(folder, name)
        writer.add(self.values, self.lengths)
        writer.close()

    def select(self, rows: np.ndarray, longest: int) -> Sequences:
        """Join the sequences of each row of `rows` `(n, k)`; -1 stands for none.

        Each is cut after `longest` steps. Token ids follow one another as they would if
        the texts did, with a space between.
        """
        lengths = np.where(rows < 0, 0, np.minimum(self.lengths[rows], longest))
        each = lengths.ravel().astype(np.int64)
        ends = np.cumsum(each)
        first = np.repeat(self.starts[rows].ravel() - (ends - each), each)
        values = self.values[np.arange(first.size) + first]
        return replace(Sequences.of(values, lengths.sum(axis=1)), padding=self.padding)

    def padded(self, width: int = 1) -> np.ndarray:
        """Pad sequences, which must lie one after another, to one array `(n, width, …)`.

        It is wider than `width` where a sequence is longer. Token ids are int32.
        """
        places = np.arange(max(width, int(self.lengths.max(initial=0))))
        shape = (len(self.lengths), places.size, *self.values.shape[1:])
        dtype = np.int32 if self.values.dtype.kind in "iu" else self.values.dtype
        ids = np.full(shape, self.padding, dtype)
        ids[places < self.lengths[:, None]] = self.values
        return ids


class SequenceWriter:
    """The files of sequences, written a block at a time.

    They are .npy files that grow, for NumPy leaves room in the header for a longer first axis.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._paths = [folder / f"{name}.{array}.npy" for array in ARRAYS]
        self._dtypes: list[np.dtype] = []
        self._files: list[BinaryIO] = []  # opened by the first block, whose dtype they have
        self._steps = self._count = 0

    def add(self, values: np.ndarray, lengths: np.ndarray) -> None:
        """Append sequences: the values of all, `(steps,)`, and the length of each."""
        if not self._files:
            kinds = values.dtype, np.int64, np.int32
            self._dtypes = [np.dtype(kind).newbyteorder("<") for kind in kinds]
            self._files = [path.open("wb") for path in self._paths]
            self._write_headers()
        starts = self._steps + np.cumsum(lengths, dtype=np.int64) - lengths
        arrays = zip(self._files, self._dtypes, (values, starts, lengths), strict=True)
        for file, dtype, array in arrays:
            file.write(np.ascontiguousarray(array, dtype).data)
        self._steps, self._count = self._steps + len(values), self._count + len(lengths)

    def close(self) -> None:
        """Write how long the arrays have become, and close the files."""
        self._write_headers()
        for file in self._files:
            file.close()

    def _write_headers(self) -> None:
        counts = self._steps, self._count, self._count
        for file, dtype, count in zip(self._files, self._dtypes, counts, strict=False):
            file.seek(0)
            header = {"descr": dtype.str, "fortran_order": False, "shape": (count,)}
            np.lib.format.write_array_header_1_0(file, header)


def ids_dtype(vocab_size: int) -> np.dtype:
    """Return the smallest type that holds the ids of a vocabulary, and that TensorFlow gathers."""
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<i4")


def in_chunks(count: int, size: int, ids_of: Callable[[slice], Ids]) -> Ids:
    """Return the token ids of `count` texts; `ids_of` encodes `size` of them at a time."""
    parts = [ids_of(slice(start, start + size)) for start in range(0, count or 1, size)]
    values, lengths = map(np.concatenate, zip(*parts, strict=True))
    return values, lengths
