"""Token ids to padded batches, in NumPy alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from training.config import Config
from training.ids import END_ID, PAD_ID, START_ID

_WINDOW = 1000  # batches that are sorted by length together
Batch = tuple[dict[str, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Sentences:
    """Token ids of many sentences, one after another.

    Attributes:
        values: int32 `(tokens + 1,)`; the last one is never read as a token.
        starts: int64 `(sentences,)`, where each begins.
        lengths: int64 `(sentences,)`, tokens of each.
    """

    values: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, lengths: np.ndarray) -> Sentences:
        """Make them of the ids of all sentences, `(tokens,)`, and their lengths."""
        lengths = np.asarray(lengths, np.int64)
        padded = np.append(np.asarray(values, np.int32), np.int32(PAD_ID))
        return cls(padded, np.cumsum(lengths) - lengths, lengths)

    def pad(
        self, rows: np.ndarray, lengths: np.ndarray, multiple: int = 1, end: bool = False
    ) -> np.ndarray:
        """First `lengths` ids of the rows, then END if wanted, padded: `(rows, width)`."""
        width = max(1, int(lengths.max()) + end)
        positions = np.arange(-(-width // multiple) * multiple)
        within = positions < lengths[:, None]
        ids = self.values[np.where(within, self.starts[rows, None] + positions, -1)]
        ids = np.where(within, ids, np.int32(PAD_ID))
        if end:
            ids[np.arange(len(rows)), lengths] = END_ID
        return ids


@dataclass(frozen=True)
class Statistics:
    """What a dataset holds.

    Attributes:
        pairs: sentence pairs in an epoch.
        dropped: pairs left out of training: too long, or empty on one side.
        source_tokens: source tokens of all pairs.
        target_tokens: labels of all pairs, END included.
        steps_per_epoch: batches in an epoch.
    """

    pairs: int
    dropped: int
    source_tokens: int
    target_tokens: int
    steps_per_epoch: int


class PairBatches:
    """Batches for teacher forcing.

    A batch is `({"source": (B, S), "target": (B, T)}, labels (B, T))`, int32, padded with PAD_ID:
    `target` begins with START and `labels`, the same tokens one step earlier, end with END.

    For training each epoch has another order, which depends on `seed` and the number of the epoch
    alone. Batches hold sentences of similar length and are all of `batch_size` (what is left over,
    less than a batch, differs in each epoch). Otherwise every pair comes once, in the order given,
    and the last batch may be smaller.

    Args:
        source: ids of the sources.
        target: ids of the targets, as many.
        batch_size: sentence pairs in a batch.
        max_source_length: most tokens of a source; longer pairs are dropped in training and cut
            otherwise.
        max_target_length: most tokens of a target, START and END not counted; likewise.
        training: whether to shuffle and drop.
        seed: seed of the order.
        length_multiple: S and T are padded to a multiple of it.

    Attributes:
        training: as given.
        statistics: what an epoch holds.

    Raises:
        ValueError: sources and targets differ in number, or no pair is left.
    """

    def __init__(
        self,
        source: Sentences,
        target: Sentences,
        *,
        batch_size: int,
        max_source_length: int,
        max_target_length: int,
        training: bool,
        seed: int = 0,
        length_multiple: int = 1,
    ) -> None:
        count = len(source.lengths)
        if count != len(target.lengths):
            raise ValueError(f"Expected as many targets as sources, {count}: {len(target.lengths)}")
        rows = np.arange(count)
        if training:
            rows = rows[
                (source.lengths > 0)
                & (target.lengths > 0)
                & (source.lengths <= max_source_length)
                & (target.lengths <= max_target_length)
            ]
        if not rows.size:
            raise ValueError(
                f"None of {count} sentence pairs is usable: expected at most "
                f"{max_source_length} source and {max_target_length} target tokens, and at least "
                "one"
            )
        self._source, self._target, self._rows = source, target, rows
        self._source_lengths = np.minimum(source.lengths, max_source_length)
        self._target_lengths = np.minimum(target.lengths, max_target_length)
        self._batch_size, self._multiple = batch_size, length_multiple
        self.training, self._seed = training, seed
        steps = max(1, rows.size // batch_size) if training else -(-rows.size // batch_size)
        self.statistics = Statistics(
            pairs=int(rows.size),
            dropped=count - int(rows.size),
            source_tokens=int(self._source_lengths[rows].sum()),
            target_tokens=int(self._target_lengths[rows].sum() + rows.size),
            steps_per_epoch=steps,
        )

    @classmethod
    def of(
        cls, config: Config, source: Sentences, target: Sentences, *, training: bool
    ) -> PairBatches:
        """Make those that a configuration asks for."""
        return cls(
            source,
            target,
            batch_size=config.batch_size,
            max_source_length=config.max_source_length,
            max_target_length=config.max_target_length,
            training=training,
            seed=config.seed,
            length_multiple=config.length_multiple,
        )

    def epoch(self, number: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch."""
        for rows in self._shuffled(number) if self.training else self._in_order():
            source = self._source.pad(rows, self._source_lengths[rows], self._multiple)
            lengths = self._target_lengths[rows]
            labels = self._target.pad(rows, lengths, self._multiple, end=True)
            target = np.roll(labels, 1, axis=1)
            target[:, 0] = START_ID
            target[target == END_ID] = PAD_ID
            yield {"source": source, "target": target}, labels

    def _in_order(self) -> list[np.ndarray]:
        starts = range(0, self._rows.size, self._batch_size)
        return [self._rows[start : start + self._batch_size] for start in starts]

    def _shuffled(self, number: int) -> list[np.ndarray]:
        """Rows of each batch: shuffled, similar lengths together, batches shuffled."""
        size, rng = self._batch_size, np.random.default_rng([self._seed, number])
        rows = rng.permutation(self._rows)[: self.statistics.steps_per_epoch * size]
        batches = []
        for start in range(0, rows.size, _WINDOW * size):
            window = rows[start : start + _WINDOW * size]
            order = np.lexsort((self._source_lengths[window], self._target_lengths[window]))
            batches += [window[order[i : i + size]] for i in range(0, order.size, size)]
        return [batches[i] for i in rng.permutation(len(batches))]
