"""Batches of an epoch, gathered and padded in NumPy; tf.data makes them ahead of their steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from training.data import corpus
from training.data.plan import Batching, InOrder, Plan
from training.data.prepared import Prepared
from training.data.shapes import STEPS
from training.data.splits import Texts
from training.data.store import END_ID, PAD_ID, START_ID, Sequences

if TYPE_CHECKING:
    import tensorflow as tf

Batch = tuple[dict[str, Any], Any]
_PREFETCH = 8  # batches that are made ahead


class Batches:
    """Batches of examples: in order, or planned anew in each epoch for `training`.

    A batch is `({"source": (B, S), "target": (B, T)}, labels (B, T))`, int32, padded with PAD_ID:
    `target` begins with START and `labels`, the same tokens one step earlier, end with END. Images
    and events are `source` as their rows are read; for labels there is no `target`.

    Args:
        batching: the settings.
        source: of the examples: `Sequences`, or examples of one size.
        target: token ids, or labels float32 `(n,)`.
        rows: examples to learn from; None for all.
        shapes: of the batches for training, see `InOrder`.

    Raises UserError where no example is left.
    """

    def __init__(
        self,
        batching: Batching,
        source: Any,
        target: Sequences | np.ndarray,
        *,
        training: bool,
        rows: np.ndarray | None = None,
        shapes: np.ndarray | None = None,
    ) -> None:
        self.source, self.target = source, target
        texts = isinstance(target, Sequences)
        if isinstance(target, Sequences):
            lengths = source.lengths, target.lengths
        else:  # labels, of histories that are cut when they are read
            lengths = source.lengths, np.ones(len(target), np.int32)
            most = int(lengths[0].max(initial=1))
            batching = replace(
                batching, max_source_length=most, max_target_length=1, batch_tokens=0
            )
        if len(lengths[0]) != len(lengths[1]):
            counts = f"{len(lengths[0])}. Received: {len(lengths[1])}"
            raise ValueError(f"Expected as many targets as sources, {counts}")
        self.plan: Plan | InOrder
        if training:
            alike = texts and isinstance(source, Sequences)
            self.plan = Plan(batching, lengths, rows, alike)
        else:
            self.plan = InOrder(batching, lengths, shapes)
        self.statistics = self.plan.statistics  # counts of an epoch; a label counts as a token
        if not texts:
            self.statistics = replace(self.statistics, target_tokens=self.statistics.pairs)

    def lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the tokens of each source and of each target that is learned from."""
        assert isinstance(self.plan, Plan)
        source, target = (side[self.plan.rows] for side in self.plan.lengths)
        return source, target

    def shapes_line(self) -> str:
        """Return the shapes of batches, where these are few, and their padding, for people."""
        if self.plan.reckoned is not None:
            return self.plan.reckoned.line(self.plan.shapes)
        if self.plan.shapes is None:
            return ""
        epoch = self.plan.epoch()
        places = float((epoch.sizes // epoch.joined * epoch.widths.sum(axis=1)).sum())
        tokens = self.statistics.source_tokens + self.statistics.target_tokens
        shapes = ", ".join(f"{source} × {target}" for source, target in self.plan.shapes)
        return (
            f"Batches have {len(self.plan.shapes)} shapes, source × target: {shapes}; "
            f"{max(0.0, 1 - tokens / places):.0%} of them is padding."
        )

    def epoch(self, number: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch."""
        rows, *batches = self.plan.epoch(number)
        for start, size, joined, widths in zip(*batches, strict=True):
            yield self.batch(rows[start : start + size].reshape(-1, joined), widths)

    def batch(self, rows: np.ndarray, widths: np.ndarray) -> Batch:
        """Make a batch.

        Args:
            rows: `(B, k)`, k pairs for each example, -1 for none; without any the labels are
                padding alone.
            widths: least widths of source and labels.
        """
        settings = self.plan.batching
        if isinstance(self.source, Sequences):
            chosen = self.source.select(rows, settings.max_source_length)
            source = chosen.padded(max(1, int(widths[0])))
        else:
            source = self.source.read(rows[:, 0])
        if isinstance(self.target, np.ndarray):
            return {"source": source}, self.target[rows[:, 0]]
        target = self.target.select(rows, settings.max_target_length)
        ids = target.padded(int(widths[1]) - 1)
        edge = np.full((len(ids), 1), PAD_ID, np.int32)
        start = np.where(rows[:, :1] < 0, edge, START_ID)  # an empty row has nothing to learn
        inputs, labels = np.hstack([start, ids]), np.hstack([ids, edge])
        labels[(labels == PAD_ID) & (inputs != PAD_ID)] = END_ID
        return {"source": source, "target": inputs}, labels

    def dataset(self, number: int = 0) -> tf.data.Dataset:
        """Return the batches of `epoch` as a dataset, which makes them ahead of their steps."""
        import tensorflow as tf

        def spec(array: np.ndarray, lengths: int) -> tf.TensorSpec:
            """Describe an array whose first `lengths` axes differ from batch to batch."""
            return tf.TensorSpec([*[None] * lengths, *array.shape[lengths:]], array.dtype)

        inputs, labels = self.batch(np.zeros((1, 1), np.int32), np.zeros(2, np.int32))
        lengths = {"source": 2 if isinstance(self.source, Sequences) else 1, "target": 2}
        specs = {name: spec(array, lengths[name]) for name, array in inputs.items()}
        dataset = tf.data.Dataset.from_generator(
            lambda: self.epoch(number), output_signature=(specs, spec(labels, labels.ndim))
        )
        options = tf.data.Options()
        options.autotune.enabled = False  # its thread delays the end of an iterator by seconds
        steps = self.statistics.steps_per_epoch
        counted = dataset.apply(tf.data.experimental.assert_cardinality(steps))
        return counted.prefetch(_PREFETCH).with_options(options)


def source_batches(
    source: Any, batch_size: int, max_source_length: int, few_shapes: bool = False
) -> Iterator[tuple[np.ndarray, Any]]:
    """Batches of sources for inference, the shortest first; empty texts are not in any.

    Args:
        source: the rows of the sources, `Sequences` or examples of one size.
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


def batch_of(source: Any, rows: np.ndarray, longest: int, width: int = 1) -> np.ndarray:
    """Return the batch of some rows: sequences, cut after `longest`, are padded to `width`."""
    if isinstance(source, Sequences):
        return source.select(rows[:, None], longest).padded(width)
    return source.read(rows)


def _rounded(size: int, most: int) -> int:
    """Return the next power of two from 16, or `most`."""
    return min(max(16, 1 << (size - 1).bit_length()), most)


def read_batches(folder: Path, texts: Texts, batching: Batching) -> tuple[Batches, Batches]:
    """Return the batches for training and those of the dev set, of a run's token ids.

    Raises CorpusError where the ids of the run, or of its prepared corpus, are damaged.
    """
    own = Prepared(folder)
    ids = own if own.count else corpus.prepared(texts.data)
    rows = ids.rows(texts.limit, texts.seed)
    pairs = Batches(batching, *ids.sides(), training=True, rows=rows)
    dev = Batches(batching, *own.sides("dev"), training=False, shapes=pairs.plan.shapes)
    return pairs, dev
