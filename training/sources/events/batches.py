"""Examples with a label, to padded batches, in NumPy alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from training.data.batches import Batch, Statistics

if TYPE_CHECKING:
    from training.data.sentences import Rows


class LabelBatches:
    """Batches of sources with one label each.

    A batch is `({"source": (B, …)}, labels float32 (B,))`. For training each epoch has another
    order, which depends on `seed` and the number of the epoch alone, and all batches are of
    `batch_size`; otherwise every example comes once, in the order given.
    """

    def __init__(
        self, source: Rows, labels: np.ndarray, batch_size: int, seed: int, *, training: bool
    ) -> None:
        self.source, self._labels = source, np.asarray(labels, np.float32)
        self._size, self._seed, self.training = batch_size, seed, training
        count = len(labels)
        self.statistics = Statistics(
            pairs=count,
            dropped=0,
            source_tokens=int(source.lengths.sum()),
            target_tokens=count,
            steps_per_epoch=max(1, count // batch_size) if training else -(-count // batch_size),
        )

    @property
    def signature(self) -> tuple:
        """Shapes and dtypes of a batch."""
        return {"source": (self.source.shape, self.source.dtype)}, ((None,), "float32")

    def epoch(self, number: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch."""
        rows = np.arange(len(self._labels))
        if self.training:
            rows = np.random.default_rng([self._seed, number]).permutation(rows)
            rows = rows[: self.statistics.steps_per_epoch * self._size]
        lengths = self.source.lengths
        for start in range(0, rows.size, self._size):
            batch = rows[start : start + self._size]
            yield {"source": self.source.pad(batch, lengths[batch])}, self._labels[batch]
