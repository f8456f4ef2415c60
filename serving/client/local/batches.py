"""Batches of rows, which threads share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")


class Batches:
    """Batches of rows, as many at a time as there are threads.

    Args:
        size: most rows of a batch; there are fewer where threads would have no batch.
        threads: how many there are.

    Raises:
        ValueError: if one of them is below 1.
    """

    def __init__(self, size: int, threads: int) -> None:
        if size < 1:
            raise ValueError(f"expected batch_size >= 1. Received: {size}")
        if threads < 1:
            raise ValueError(f"expected at least 1 thread. Received: {threads}")
        self._size, self._threads = size, threads

    def each(self, rows: Sequence[int], work: Callable[[Sequence[int]], T]) -> list[T]:
        """Return what `work` makes of each batch of rows, which stay in their order."""
        size = min(self._size, -(-len(rows) // self._threads)) or 1
        batches = [rows[start : start + size] for start in range(0, len(rows), size)]
        if len(batches) < 2 or self._threads == 1:
            return list(map(work, batches))
        contexts = [copy_context() for _ in batches]  # with the caller's RUN_OPTIONS
        with ThreadPoolExecutor(self._threads) as pool:
            return list(pool.map(lambda own, batch: own.run(work, batch), contexts, batches))

    def by_length(self, lengths: Sequence[int], work: Callable[[Sequence[int]], T]) -> list[T]:
        """Return the same of all rows: those of about the same length together, the longest first.

        Args:
            lengths: of the rows.
            work: see `each`.
        """
        return self.each(sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True), work)
