"""Token ids to padded batches, in NumPy alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np

from training.command.errors import UserError
from training.config.schema import Config
from training.data.ids import END_ID, PAD_ID, START_ID
from training.data.sentences import Rows, Sentences
from training.data.subwords import Samplers

_JOIN_MOST = 8  # pairs in a joined one; fewer where it would be too long
_WINDOW = 1000  # batches that are sorted by length together
Batch = tuple[dict[str, np.ndarray], np.ndarray]


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


class _Pairs(NamedTuple):
    """Those of a batch: rows of both sides, and how many tokens of each."""

    source: Rows
    target: Sentences
    rows: np.ndarray
    source_lengths: np.ndarray
    target_lengths: np.ndarray


class PairBatches:
    """Batches for teacher forcing.

    A batch is `({"source": (B, S), "target": (B, T)}, labels (B, T))`, int32, padded with PAD_ID:
    `target` begins with START and `labels`, the same tokens one step earlier, end with END.

    For training each epoch has another order, which depends on `seed` and the number of the epoch
    alone. Batches hold sentences of similar length (those of images any) and are all of
    `batch_size` (what is left over, less than a batch, differs in each epoch). Otherwise every pair
    comes once, in the order given, and the last batch may be smaller.

    Where pairs are joined, another share of the batches in each epoch holds longer ones: two or
    more pairs one after another, source to source and target to target (Kondo et al. 2021, arXiv
    2104.08478). Such a batch is made of `batch_size` pairs, too, and so has fewer rows. A model
    that saw single sentences alone does not translate two of them.

    With `batch_tokens` batches for training have as many tokens each, not as many pairs: short
    sentences come in batches of many. Every epoch has as many steps as the first would have: where
    its own order makes more batches, some are left out, and where fewer, some come twice.

    With `samplers` the subwords of a training pair are drawn anew each time that it is seen. What
    is said of lengths holds for the subwords given: those drawn may be more.

    Args:
        source: rows of the sources, of texts their ids.
        target: ids of the targets, as many.
        batch_size: sentence pairs in a batch.
        max_source_length: most tokens of a source; longer pairs are dropped in training and cut
            otherwise.
        max_target_length: most tokens of a target, START and END not counted; likewise.
        training: whether to shuffle and drop.
        seed: seed of the order.
        length_multiple: S and T are padded to a multiple of it.
        join: share of the batches in training that hold joined pairs, 0 to 1.
        batch_tokens: most tokens in a batch for training, padding and START counted, of the side
            that has more; a single pair may have more. 0 for batches of `batch_size`.
        samplers: what draws the subwords of sources and of targets, see `training.data.subwords`;
            None where a side stays as it is.

    Attributes:
        source: as given.
        training: as given.
        statistics: what an epoch holds.

    Raises:
        ValueError: sources and targets differ in number.
        UserError: no pair is left.
    """

    def __init__(
        self,
        source: Rows,
        target: Sentences,
        *,
        batch_size: int,
        max_source_length: int,
        max_target_length: int,
        training: bool,
        seed: int = 0,
        length_multiple: int = 1,
        join: float = 0.0,
        batch_tokens: int = 0,
        samplers: Samplers = (None, None),
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
            raise UserError(
                f"None of {count} sentence pairs is usable: expected at most "
                f"{max_source_length} source and {max_target_length} target tokens, and at least "
                "one"
            )
        self.source, self._target, self._rows = source, target, rows
        self._source_lengths = np.minimum(source.lengths, max_source_length)
        self._target_lengths = np.minimum(target.lengths, max_target_length)
        self._batch_size, self._multiple = batch_size, length_multiple
        self.training, self._seed = training, seed
        self._longest = np.array([max_source_length, max_target_length])
        self._join, self._join_most = join, min(_JOIN_MOST, batch_size)
        self._batch_tokens, self._samplers = batch_tokens, samplers
        steps = max(1, rows.size // batch_size) if training else -(-rows.size // batch_size)
        if training and batch_tokens:
            steps = len(self._of_tokens(np.random.default_rng([seed, 0]).permutation(rows)))
        self.statistics = Statistics(
            pairs=int(rows.size),
            dropped=count - int(rows.size),
            source_tokens=int(self._source_lengths[rows].sum()),
            target_tokens=int(self._target_lengths[rows].sum() + rows.size),
            steps_per_epoch=steps,
        )

    @classmethod
    def of(
        cls,
        config: Config,
        source: Rows,
        target: Sentences,
        *,
        training: bool,
        samplers: Samplers = (None, None),
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
            join=config.join,
            batch_tokens=config.batch_tokens,
            samplers=samplers,
        )

    @property
    def signature(self) -> tuple:
        """Shapes and dtypes of a batch."""
        ids = (None, None), "int32"
        return {"source": (self.source.shape, self.source.dtype), "target": ids}, ids

    def epoch(self, number: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch."""
        if not self.training:
            for rows in self._in_order():
                yield self._batch(self._single(rows))
            return
        size, rng = self._batch_size, np.random.default_rng([self._seed, number])
        steps = self.statistics.steps_per_epoch
        if self._batch_tokens:
            filled = self._of_tokens(rng.permutation(self._rows))
            for position in np.resize(rng.permutation(len(filled)), steps):
                yield self._batch(self._drawn(self._single(filled[position]), rng))
            return
        rows = rng.permutation(self._rows)[: steps * size]
        joined = min(round(self._join * steps), rows.size // size)
        parts = [(self._single, self._alike(rows[joined * size :], size))]
        if joined:
            groups = np.sort(rng.integers(2, self._join_most + 1, joined))
            for group, first in zip(*np.unique(groups, return_index=True), strict=True):
                count = int((groups == group).sum())
                found = rows[first * size : (first + count) * size].reshape(count, size)
                found = found[:, : size // group * group].reshape(-1, group)
                parts.append((self._joined, self._alike(found, size // int(group))))
        places = [(choose, part, at) for choose, part in parts for at in range(len(part))]
        for position in rng.permutation(len(places)):
            choose, part, at = places[position]
            yield self._batch(self._drawn(choose(part[at]), rng))

    def _single(self, rows: np.ndarray) -> _Pairs:
        """Return some pairs as they are."""
        lengths = self._source_lengths[rows], self._target_lengths[rows]
        return _Pairs(self.source, self._target, rows, *lengths)

    def _joined(self, rows: np.ndarray) -> _Pairs:
        """Join rows of pairs `(n, k)`, of each as many as the lengths allow."""
        lengths = np.stack([self._source_lengths[rows], self._target_lengths[rows]], -1)
        present = np.all(np.cumsum(lengths, axis=1) <= self._longest, axis=-1)
        sentences = cast(Sentences, self.source)  # nothing else has words to join
        source, target = sentences.joined(rows, present), self._target.joined(rows, present)
        return _Pairs(source, target, np.arange(len(rows)), source.lengths, target.lengths)

    def _drawn(self, pairs: _Pairs, rng: np.random.Generator) -> _Pairs:
        """Draw the subwords of some pairs anew, where that is wanted."""
        if not any(self._samplers):
            return pairs
        source, target = (
            sampler.draw(side.taken(pairs.rows), rng) if sampler else side.taken(pairs.rows)
            for sampler, side in zip(
                self._samplers, (cast(Sentences, pairs.source), pairs.target), strict=True
            )
        )
        return _Pairs(source, target, np.arange(len(pairs.rows)), source.lengths, target.lengths)

    def _batch(self, pairs: _Pairs) -> Batch:
        """Make the batch of some pairs."""
        labels = pairs.target.pad(pairs.rows, pairs.target_lengths, self._multiple, end=True)
        inputs = np.roll(labels, 1, axis=1)
        inputs[:, 0] = START_ID
        inputs[inputs == END_ID] = PAD_ID
        padded = pairs.source.pad(pairs.rows, pairs.source_lengths, self._multiple)
        return {"source": padded, "target": inputs}, labels

    def _of_tokens(self, rows: np.ndarray) -> list[np.ndarray]:
        """Cut shuffled rows into batches of like length and of `batch_tokens` at most."""
        mean = np.maximum(self._source_lengths, self._target_lengths + 1)[self._rows].mean()
        window = max(1, int(_WINDOW * self._batch_tokens / mean))
        return [
            batch
            for start in range(0, rows.size, window)
            for batch in self._filled(rows[start : start + window])
        ]

    def _filled(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        """Cut rows, sorted by their length, into batches of `batch_tokens` at most."""
        sides = self._source_lengths[rows], self._target_lengths[rows] + 1
        rows = rows[np.lexsort(sides)]
        longest = np.maximum(self._source_lengths[rows], self._target_lengths[rows] + 1)
        widths = -(-longest.astype(np.int64) // self._multiple) * self._multiple
        start = 0
        while start < rows.size:
            most = max(1, self._batch_tokens // int(widths[start]))
            wide = np.maximum.accumulate(widths[start : start + most])
            sizes = wide * np.arange(1, wide.size + 1)
            fit = max(1, int(np.count_nonzero(sizes <= self._batch_tokens)))
            yield rows[start : start + fit]
            start += fit

    def _in_order(self) -> list[np.ndarray]:
        starts = range(0, self._rows.size, self._batch_size)
        return [self._rows[start : start + self._batch_size] for start in starts]

    def _alike(self, rows: np.ndarray, size: int) -> _Alike:
        """Cut shuffled rows, `(n,)` or of several pairs `(n, k)`, into batches of like length.

        Images, all of one size, stay as shuffled: a batch of targets of one length has statistics
        that tell it, which batch normalisation would hand to the decoder in training alone.
        """
        if None not in self.source.shape[1:]:
            return _Alike(rows, size, ())
        return _Alike(rows, size, (self._source_lengths, self._target_lengths))


class _Alike:
    """Batches of rows, of like length within a window, which is sorted when it is first read.

    Args:
        rows: shuffled, `(n,)` or of several pairs `(n, k)`.
        size: rows in a batch.
        sides: the lengths of all sources and of all targets; none to leave rows as they are.
    """

    def __init__(self, rows: np.ndarray, size: int, sides: tuple[np.ndarray, ...]) -> None:
        self._rows, self._size, self._sides = rows, size, sides
        self._windows: dict[int, np.ndarray] = {}

    def __len__(self) -> int:
        return -(-len(self._rows) // self._size)

    def __getitem__(self, number: int) -> np.ndarray:
        window, at = divmod(number, _WINDOW)
        if window not in self._windows:
            self._windows[window] = self._sorted(window)
        return self._windows[window][at * self._size : (at + 1) * self._size]

    def _sorted(self, window: int) -> np.ndarray:
        first = window * _WINDOW * self._size
        rows = self._rows[first : first + _WINDOW * self._size]
        if not self._sides:
            return rows
        lengths = [side[rows].reshape(len(rows), -1).sum(axis=1) for side in self._sides]
        return rows[np.lexsort(lengths)]
