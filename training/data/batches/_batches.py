"""Batches of an epoch, gathered and padded in NumPy; tf.data prepares batches ahead of steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from training.data.batches._plan import Batching, EvaluationPlan, Plan
from training.data.batches._shapes import STEPS
from training.data.read.texts import Texts
from training.data.rules import tag_length
from training.data.tokens._prepared import Prepared
from training.data.tokens.store import END_ID, PAD_ID, START_ID, Sequences

if TYPE_CHECKING:
    import tensorflow as tf

Batch = tuple[dict[str, Any], Any]
_PREFETCH = 8  # batches that are prepared ahead of their step


class Batches:
    """Batches of examples: in order, or for `training` in a new order in each epoch.

    A batch is `({"source": (B, S), "target": (B, T)}, labels (B, T))`, int32, padded with PAD_ID.
    `target` begins with START. `labels` has the same tokens one step earlier, and ends with END.
    For histories, `source` is the padded events `(B, S, …)`; for images, the array that
    `source.read` returns. A model of labels has no `target`, and its labels are float32 `(B,)`.

    Args:
        batching: the settings.
        source: the examples' sources: `Sequences`, or examples of one size with methods
            `in_epoch` and `read`.
        target: token ids, or labels float32 `(n,)`.
        training: whether to plan each epoch anew; otherwise examples stay in order.
        rows: training examples `(n,)`; None for all.
        shapes: the shapes of training batches, see `EvaluationPlan`.

    Raises UserError if no example is left.
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
        else:  # labels of histories, which were cut when they were read
            lengths = source.lengths, np.ones(len(target), np.int32)
            most = int(lengths[0].max(initial=1))
            batching = replace(
                batching, max_source_length=most, max_target_length=1, batch_tokens=0
            )
        if len(lengths[0]) != len(lengths[1]):
            counts = f"{len(lengths[0])}. Received: {len(lengths[1])}"
            raise ValueError(f"Expected as many targets as sources, {counts}")
        self.plan: Plan | EvaluationPlan
        if training:
            alike = texts and isinstance(source, Sequences)
            self.plan = Plan(batching, lengths, rows, alike)
        else:
            self.plan = EvaluationPlan(batching, lengths, shapes)
        self.statistics = self.plan.statistics  # counts of an epoch; a label counts as a token
        if not texts:
            self.statistics = replace(self.statistics, target_tokens=self.statistics.pairs)

    def lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of tokens of each training source and target, both `(n,)`."""
        assert isinstance(self.plan, Plan)
        source, target = (side[self.plan.rows] for side in self.plan.lengths)
        return source, target

    def tag_lengths(self, tag: Mapping[str, int]) -> np.ndarray:
        """Return the number of ids of each training source's tag, `(n,)`: see `tag_length`."""
        assert isinstance(self.plan, Plan)
        sources, rows = self.source, self.plan.rows
        starts, lengths = sources.starts[rows], sources.lengths[rows]
        sizes = np.zeros(len(rows), np.int32)
        for row in np.flatnonzero(sources.values[starts] == tag["open"]):
            ids = sources.values[starts[row] : starts[row] + lengths[row]]
            sizes[row] = tag_length(ids.tolist(), tag)
        return sizes

    def shapes_line(self) -> str:
        """Return the shapes of batches, if they are few, and their padding, for people."""
        if self.plan.predicted is not None:
            return self.plan.predicted.line(self.plan.shapes)
        if self.plan.shapes is None:
            return ""
        epoch = self.plan.epoch()
        places = float((epoch.sizes // epoch.joined * epoch.widths.sum(axis=1)).sum())
        tokens = self.statistics.source_tokens + self.statistics.target_tokens
        shapes = ", ".join(f"{source} × {target}" for source, target in self.plan.shapes)
        count = len(self.plan.shapes)
        return (
            f"Batches have {count} shape{'s' * (count > 1)}, source × target: {shapes}; "
            f"{max(0.0, 1 - tokens / places):.0%} of them is padding."
        )

    def epoch(self, number: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch, which may vary the examples of one size."""
        source = self.source
        if not isinstance(source, Sequences):
            source = source.in_epoch(number)
        rows, *batches = self.plan.epoch(number)
        for start, size, joined, widths in zip(*batches, strict=True):
            yield self.batch(rows[start : start + size].reshape(-1, joined), widths, source)

    def batch(self, rows: np.ndarray, widths: np.ndarray, source: Any = None) -> Batch:
        """Return the batch of some rows.

        Args:
            rows: `(B, k)`, the k pairs that are joined in each example; -1 for no pair. An example
                without any pair has only padding as labels.
            widths: `(2,)`, least widths of source and labels.
            source: the sources as an epoch reads them; None for unchanged ones.
        """
        settings, source = self.plan.batching, self.source if source is None else source
        if isinstance(source, Sequences):
            chosen = source.select(rows, settings.max_source_length)
            source = chosen.padded(max(1, int(widths[0])))  # (B, S, …)
        else:
            source = source.read(rows[:, 0])
        if isinstance(self.target, np.ndarray):
            return {"source": source}, self.target[rows[:, 0]]
        target = self.target.select(rows, settings.max_target_length)
        ids = target.padded(int(widths[1]) - 1)  # (B, T - 1)
        edge = np.full((len(ids), 1), PAD_ID, np.int32)  # (B, 1)
        # an empty row has no START, and so no END
        start = np.where(rows[:, :1] < 0, edge, START_ID)
        inputs, labels = np.hstack([start, ids]), np.hstack([ids, edge])  # (B, T)
        labels[(labels == PAD_ID) & (inputs != PAD_ID)] = END_ID
        return {"source": source, "target": inputs}, labels

    def dataset(self, number: int = 0) -> tf.data.Dataset:
        """Return the batches of `epoch` as a dataset that prepares batches ahead of their steps."""
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
        # the autotuner's thread delays the end of an iterator by seconds
        options.autotune.enabled = False
        steps = self.statistics.steps_per_epoch
        counted = dataset.apply(tf.data.experimental.assert_cardinality(steps))
        return counted.prefetch(_PREFETCH).with_options(options)


def source_batches(
    source: Any, batch_size: int, max_source_length: int, few_shapes: bool = False
) -> Iterator[tuple[np.ndarray, Any]]:
    """Yield batches of sources for inference, the shortest sources first; skip empty texts.

    Args:
        source: the sources, `Sequences` or examples of one size.
        batch_size: number of sources in each batch but the last.
        max_source_length: number of steps after which a source is cut.
        few_shapes: whether to make few shapes, because a program is compiled for each shape. Widths
            are powers of two. All batches have `batch_size` rows, but a single batch has a power of
            two. The last source of a batch is repeated to fill the batch.

    Yields:
        `(indices (b,), batch (b, …))`: the positions of the sources, and their batch. A batch of
        texts is int32 ids `(b, S)`, padded with PAD_ID.
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
    """Return the batch of rows `(b,)`: sequences are cut after `longest`, and padded to `width`."""
    if isinstance(source, Sequences):
        return source.select(rows[:, None], longest).padded(width)
    return source.read(rows)


def _rounded(size: int, most: int) -> int:
    """Return the least power of two that is at least `size` and 16, but at most `most`."""
    return min(max(16, 1 << (size - 1).bit_length()), most)


def make_batches(tokens: Prepared, texts: Texts, batching: Batching) -> tuple[Batches, Batches]:
    """Return the training batches and the dev batches of a run's token ids.

    Raises CorpusError if the token ids are damaged.
    """
    rows = tokens.training.rows(texts.limit, texts.seed)
    pairs = Batches(batching, *tokens.training.sides(), training=True, rows=rows)
    dev = Batches(batching, *tokens.sides("dev"), training=False, shapes=pairs.plan.shapes)
    return pairs, dev
