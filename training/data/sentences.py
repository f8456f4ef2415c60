"""Token ids of many sentences, in NumPy alone; and what all rows of examples can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from training.data.ids import END_ID, PAD_ID


class Rows(Protocol):
    """Many examples of one side, read and ready to be made batches of."""

    @property
    def lengths(self) -> np.ndarray:
        """The length of each example, int64 `(N,)`: tokens, events, 1 for an image."""

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The shape of a batch, None for what differs from batch to batch."""

    @property
    def dtype(self) -> str:
        """The dtype of a batch."""

    def pad(self, rows: np.ndarray, lengths: np.ndarray, multiple: int = 1) -> np.ndarray:
        """Return the first `lengths` of these rows as a batch, padded to a multiple."""


@dataclass(frozen=True)
class Sentences:
    """Token ids of many sentences, one after another.

    Attributes:
        values: whole numbers `(tokens + 1,)`; the last one is never read as a token.
        starts: int64 `(sentences,)`, where each begins.
        lengths: whole numbers `(sentences,)`, tokens of each.
    """

    values: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray

    shape: ClassVar[tuple[int | None, ...]] = (None, None)
    dtype: ClassVar[str] = "int32"

    @classmethod
    def of(cls, values: np.ndarray, lengths: np.ndarray) -> Sentences:
        """Make them of the ids of all sentences, `(tokens,)`, and their lengths."""
        lengths = np.asarray(lengths, np.int64)
        padded = np.append(np.asarray(values, np.int32), np.int32(PAD_ID))
        return cls(padded, np.cumsum(lengths) - lengths, lengths)

    def joined(self, rows: np.ndarray, present: np.ndarray) -> Sentences:
        """Make longer ones, each of those sentences of a row `(n, k)` that are `present` `(n, k)`.

        Their ids follow one another as they would if the texts did, with a space between.
        """
        lengths = np.where(present, self.lengths[rows], 0)
        each, total = lengths.ravel(), int(lengths.sum())
        ends = np.cumsum(each)
        positions = np.arange(total) + np.repeat(self.starts[rows].ravel() - (ends - each), each)
        return Sentences.of(self.values[positions], lengths.sum(axis=1))

    def taken(self, rows: np.ndarray) -> Sentences:
        """Return those of some rows `(n,)`."""
        return self.joined(rows[:, None], np.ones((len(rows), 1), bool))

    def pad(
        self, rows: np.ndarray, lengths: np.ndarray, multiple: int = 1, end: bool = False
    ) -> np.ndarray:
        """First `lengths` ids of the rows, then END if wanted, padded: `(rows, width)`."""
        width = max(1, int(lengths.max()) + end)
        positions = np.arange(-(-width // multiple) * multiple)
        within = positions < lengths[:, None]
        ids = self.values[np.where(within, self.starts[rows, None] + positions, -1)]
        ids = np.where(within, ids.astype(np.int32, copy=False), np.int32(PAD_ID))
        if end:
            ids[np.arange(len(rows)), lengths] = END_ID
        return ids
