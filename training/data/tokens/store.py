"""Sequences of token ids in three arrays, which are written block by block and memory-mapped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from training.data.rules import END_ID, PAD_ID, START_ID, UNK_ID  # noqa: F401

SIDES = ("source", "target")
TOGETHER = 8192  # texts that are encoded together
ARRAYS = ("values", "starts", "lengths")
# token ids `(tokens,)` of texts, one text after another, and lengths `(n,)`
Ids = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Sequences:
    """Sequences of token ids or of events."""

    values: np.ndarray  # steps of all sequences, `(steps, …)`
    starts: np.ndarray  # where each sequence begins, int64 `(n,)`
    lengths: np.ndarray  # steps of each sequence, int32 `(n,)`
    padding: float = PAD_ID  # value that pads batches

    @classmethod
    def of(cls, values: np.ndarray, lengths: np.ndarray) -> Sequences:
        """Return sequences of values `(steps, …)`, one after another, with lengths `(n,)`."""
        lengths = np.asarray(lengths, np.int32)
        return cls(np.asarray(values), np.cumsum(lengths, dtype=np.int64) - lengths, lengths)

    @classmethod
    def open(cls, folder: Path, name: str) -> Sequences:
        """Return the sequences in a folder, memory-mapped; data are read only when needed.

        Raises OSError or ValueError if a file is missing or damaged.
        """
        values, starts, lengths = (
            np.asarray(np.load(folder / f"{name}.{array}.npy", mmap_mode="r")) for array in ARRAYS
        )
        return cls(values, starts, lengths)

    def save(self, folder: Path, name: str) -> None:
        """Write the arrays into a folder."""
        writer = SequenceWriter(folder, name)
        writer.add(self.values, self.lengths)
        writer.close()

    def select(self, rows: np.ndarray, longest: int) -> Sequences:
        """Return the joined sequences of each row of `rows`, `(n, k)`; -1 for no sequence.

        Each sequence is cut after `longest` steps. Joined token ids equal the token ids of texts
        that are joined by a space.
        """
        lengths = np.where(rows < 0, 0, np.minimum(self.lengths[rows], longest))  # (n, k)
        each = lengths.ravel().astype(np.int64)  # (n · k,)
        ends = np.cumsum(each)
        # place in `values` of each step, minus the step's place in the result
        first = np.repeat(self.starts[rows].ravel() - (ends - each), each)
        values = self.values[np.arange(first.size) + first]
        return replace(Sequences.of(values, lengths.sum(axis=1)), padding=self.padding)

    def padded(self, width: int = 1) -> np.ndarray:
        """Return an array `(n, width, …)` of padded sequences, which must lie one after another.

        The array is wider than `width` if a sequence is longer. Token ids are int32.
        """
        places = np.arange(max(width, int(self.lengths.max(initial=0))))  # (width,)
        shape = (len(self.lengths), places.size, *self.values.shape[1:])
        dtype = np.int32 if self.values.dtype.kind in "iu" else self.values.dtype
        ids = np.full(shape, self.padding, dtype)
        ids[places < self.lengths[:, None]] = self.values  # the mask is (n, width)
        return ids


class SequenceWriter:
    """Writes the files of sequences, a block at a time.

    The .npy files grow, because NumPy leaves space in the header for a longer first axis.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._paths = [folder / f"{name}.{array}.npy" for array in ARRAYS]
        self._dtypes: list[np.dtype] = []
        self._files: list[BinaryIO] = []  # opened by the first block, which decides their dtype
        self._steps = self._count = 0

    def add(self, values: np.ndarray, lengths: np.ndarray) -> None:
        """Append sequences: their values `(steps,)`, one after another, and lengths `(n,)`."""
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
        """Write the final lengths of the arrays, and close the files."""
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
    """Return the smallest dtype that holds a vocabulary's ids and that TensorFlow can gather."""
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<i4")


def in_chunks(count: int, size: int, ids_of: Callable[[slice], Ids]) -> Ids:
    """Return the token ids of `count` texts; `ids_of` encodes a slice of `size` texts at a time."""
    parts = [ids_of(slice(start, start + size)) for start in range(0, count or 1, size)]
    values, lengths = map(np.concatenate, zip(*parts, strict=True))
    return values, lengths
