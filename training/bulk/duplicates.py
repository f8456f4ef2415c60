"""Which pairs of a corpus came before, in little memory: by hashes that are sorted on the disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from training.bulk.cleaning import SKIPPED, part

_TOGETHER = 4_000_000  # pairs whose hashes are compared in memory


def mark_duplicates(folder: Path, counts: Sequence[int], together: int = _TOGETHER) -> np.ndarray:
    """Mark all pairs but the first of those with the same hash.

    Hashes have 64 bits: of a thousand million different pairs, 0.03 are taken for another.

    Args:
        folder: where `cleaning.clean_block` has left `hashes` and `order` of each block.
        counts: pairs of each block.
        together: pairs whose hashes are compared in memory, about: 130 MB.

    Returns:
        bool `(pairs,)`, which lies in a file of the folder, not in memory.
    """
    total = sum(counts)
    marks = np.memmap(folder / SKIPPED, bool, "w+", shape=(max(1, total),))
    starts = np.cumsum([0, *counts])
    parts = [
        (
            np.memmap(part(folder, number, "hashes"), np.uint64, "r"),
            np.memmap(part(folder, number, "order"), np.uint32, "r"),
            start,
        )
        for number, (count, start) in enumerate(zip(counts, starts[:-1], strict=True))
        if count
    ]
    buckets = max(1, -(-total // together))
    edges = np.array([2**64 * bucket // buckets for bucket in range(1, buckets)], np.uint64)
    cuts = [[0, *np.searchsorted(hashes, edges).tolist(), hashes.size] for hashes, _, _ in parts]
    for bucket in range(buckets):
        found, rows = [], []
        for (hashes, order, start), cut in zip(parts, cuts, strict=True):
            within = slice(cut[bucket], cut[bucket + 1])
            found.append(np.asarray(hashes[within]))
            rows.append(order[within].astype(np.int64) + start)
        if not found:
            continue
        values, places = np.concatenate(found), np.concatenate(rows)
        again = np.ones(values.size, bool)
        again[np.unique(values, return_index=True)[1]] = False  # the first, as the parts stand
        marks[places[again]] = True
    return marks
