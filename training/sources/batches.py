"""Batches of images and histories to train with, and of all kinds of sources for inference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from training.config.schema import Config
from training.data.batches import Batches
from training.data.plan import Batching
from training.data.shapes import STEPS
from training.data.store import Sequences
from training.data.token_ids import tokenize
from training.data.tokenizers import Tokenizer
from training.sources.source import Rows, Source


def make_batches(
    config: Config, split: Any, source: Source, target: Tokenizer | None, *, training: bool
) -> Batches:
    """Read a split, as the source loads it, of images or histories; return its batches.

    There is no `target` for a label. Texts have batches of the token ids of their run.
    """
    rows: Rows
    labels: Sequences | np.ndarray
    if target is None:
        rows, labels = source.rows(split, training), np.asarray(split.labels, np.float32)
    else:
        examples, texts = map(list, zip(*split.pairs(), strict=True))
        rows, labels = source.rows(examples, training), tokenize(texts, target)
    return Batches(Batching.of(config), rows, labels, training=training)


def source_batches(
    source: Rows, batch_size: int, max_source_length: int, few_shapes: bool = False
) -> Iterator[tuple[np.ndarray, Any]]:
    """Batches of sources for inference, the shortest first; empty texts are not in any.

    Args:
        source: the rows of the sources.
        batch_size: of each batch but the last.
        max_source_length: steps after which sources are cut.
        few_shapes: whether widths are powers of two, and sizes the same, or one power of two where
            all are a batch: programs are compiled for each. The last source is repeated for it.

    Yields:
        `(indices (b,), batch (b, …))`: which they are, and of texts int32 ids `(b, S)` padded with
        PAD_ID, cut after `max_source_length`.
    """
    lengths = np.minimum(source.lengths, max_source_length)
    order = np.argsort(lengths, kind="stable")
    order = order[lengths[order] > 0]
    size = _rounded(order.size, batch_size)
    for start in range(0, order.size, batch_size):
        rows, width = order[start : start + batch_size], 1
        if few_shapes:
            width = _rounded(int(lengths[rows[-1]]), -(-max_source_length // STEPS) * STEPS)
            rows = np.pad(rows, (0, size - len(rows)), mode="edge")
        yield rows, batch_of(source, rows, max_source_length, width)


def batch_of(source: Rows, rows: np.ndarray, longest: int, width: int = 1) -> np.ndarray:
    """Return the batch of some rows: sequences, cut after `longest`, are padded to `width`."""
    if isinstance(source, Sequences):
        return source.select(rows[:, None], longest).padded(width)
    return source.read(rows)


def _rounded(size: int, most: int) -> int:
    """Return the next power of two from 16, or `most`."""
    return min(max(16, 1 << (size - 1).bit_length()), most)
