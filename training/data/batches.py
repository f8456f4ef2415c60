"""Token ids to padded batches, in NumPy alone: in order, of as many pairs, of as many tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields
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
class Batching:
    """The settings of batches: the configuration's keys of these names.

    Attributes:
        batch_size: sentence pairs in a batch.
        max_source_length: most tokens of a source; longer pairs are dropped in training and cut
            otherwise.
        max_target_length: most tokens of a target, START and END not counted; likewise.
        length_multiple: widths are padded to a multiple of it.
        join: share of the batches in training that hold joined pairs, 0 to 1.
        batch_tokens: most tokens in a batch for training, padding and START counted, of the side
            that has more; a single pair may have more. 0 for batches of `batch_size`.
        seed: seed of the order.
    """

    batch_size: int
    max_source_length: int
    max_target_length: int
    length_multiple: int = 1
    join: float = 0.0
    batch_tokens: int = 0
    seed: int = 0

    @classmethod
    def of(cls, config: Config) -> Batching:
        """Return what a configuration asks for."""
        return cls(**{field.name: getattr(config, field.name) for field in fields(cls)})


@dataclass(frozen=True)
class Statistics:
    """Counts of a dataset.

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


class _Chosen(NamedTuple):
    """The pairs of a batch: rows of both sides, and how many tokens of each."""

    source: Rows
    target: Sentences
    rows: np.ndarray
    source_lengths: np.ndarray
    target_lengths: np.ndarray


class PairBatches(ABC):
    """Batches for teacher forcing.

    A batch is `({"source": (B, S), "target": (B, T)}, labels (B, T))`, int32, padded with PAD_ID:
    `target` begins with START and `labels`, the same tokens one step earlier, end with END.

    Attributes:
        source: rows of the sources, of texts their ids.
        training: whether batches are shuffled, without end.
        statistics: of an epoch.
    """

    training = True

    def __init__(self, batching: Batching, source: Rows, target: Sentences) -> None:
        self.batching, self.source, self._target = batching, source, target
        self._source_lengths = np.minimum(source.lengths, batching.max_source_length)
        self._target_lengths = np.minimum(target.lengths, batching.max_target_length)
        self._rows = self._usable()
        if not self._rows.size:
            raise UserError(
                f"None of {len(source.lengths)} sentence pairs is usable: expected at most "
                f"{batching.max_source_length} source and {batching.max_target_length} target "
                "tokens, and at least one"
            )
        self.statistics = Statistics(
            pairs=self._rows.size,
            dropped=len(source.lengths) - self._rows.size,
            source_tokens=int(self._source_lengths[self._rows].sum()),
            target_tokens=int(self._target_lengths[self._rows].sum() + self._rows.size),
            steps_per_epoch=self._count_steps(),
        )

    @property
    def signature(self) -> tuple:
        """Shapes and dtypes of a batch."""
        ids = (None, None), "int32"
        return {"source": (self.source.shape, self.source.dtype), "target": ids}, ids

    @abstractmethod
    def epoch(self, number: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch."""

    @abstractmethod
    def _count_steps(self) -> int: ...

    def _usable(self) -> np.ndarray:
        """Return the rows of an epoch: all that are neither empty nor too long."""
        whole = np.stack([self.source.lengths, self._target.lengths])
        cut = np.stack([self._source_lengths, self._target_lengths])
        return np.flatnonzero(np.all((cut > 0) & (cut == whole), axis=0))

    def _single(self, rows: np.ndarray) -> _Chosen:
        """Return some pairs as they are."""
        lengths = self._source_lengths[rows], self._target_lengths[rows]
        return _Chosen(self.source, self._target, rows, *lengths)

    def _batch(self, chosen: _Chosen) -> Batch:
        """Make the batch of some pairs."""
        multiple = self.batching.length_multiple
        labels = chosen.target.pad(chosen.rows, chosen.target_lengths, multiple, end=True)
        inputs = np.roll(labels, 1, axis=1)
        inputs[:, 0] = START_ID
        inputs[inputs == END_ID] = PAD_ID
        padded = chosen.source.pad(chosen.rows, chosen.source_lengths, multiple)
        return {"source": padded, "target": inputs}, labels


class InOrder(PairBatches):
    """Every pair once, in the order given, longer ones cut; the last batch may be smaller."""

    training = False

    def epoch(self, number: int = 0) -> Iterator[Batch]:
        """Yield the batches, the same in each epoch."""
        size = self.batching.batch_size
        for start in range(0, self._rows.size, size):
            yield self._batch(self._single(self._rows[start : start + size]))

    def _usable(self) -> np.ndarray:
        return np.arange(len(self.source.lengths))

    def _count_steps(self) -> int:
        return -(-self._rows.size // self.batching.batch_size)


class Shuffled(PairBatches):
    """Batches of `batch_size` pairs of similar length, in another order in each epoch.

    The order depends on the seed and the number of the epoch alone. Each epoch leaves out other
    pairs, fewer than a batch. Images, all of one size, are not sorted by length.

    Where pairs are joined, another share of the batches in each epoch holds longer ones: two or
    more pairs one after another, source to source and target to target (Kondo et al. 2021, arXiv
    2104.08478). Such a batch is made of `batch_size` pairs, too, and so has fewer rows. A model
    that saw single sentences alone does not translate two of them.

    With samplers the subwords of a pair are drawn anew each time that it is seen. Lengths are those
    of the subwords given: the drawn ones may be more.
    """

    def __init__(
        self, batching: Batching, source: Rows, target: Sentences, samplers: Samplers
    ) -> None:
        self._samplers = samplers
        super().__init__(batching, source, target)

    def epoch(self, number: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch."""
        size, rng = self.batching.batch_size, self._random(number)
        steps = self.statistics.steps_per_epoch
        rows = rng.permutation(self._rows)[: steps * size]
        joined = min(round(self.batching.join * steps), rows.size // size)
        parts = [(self._single, self._alike(rows[joined * size :], size))]
        if joined:
            groups = np.sort(rng.integers(2, min(_JOIN_MOST, size) + 1, joined))
            for group, first in zip(*np.unique(groups, return_index=True), strict=True):
                count = int((groups == group).sum())
                found = rows[first * size : (first + count) * size].reshape(count, size)
                found = found[:, : size // group * group].reshape(-1, group)
                parts.append((self._joined, self._alike(found, size // int(group))))
        places = [(choose, part, at) for choose, part in parts for at in range(len(part))]
        for position in rng.permutation(len(places)):
            choose, part, at = places[position]
            yield self._batch(self._drawn(choose(part[at]), rng))

    def _count_steps(self) -> int:
        return max(1, self._rows.size // self.batching.batch_size)

    def _random(self, epoch: int) -> np.random.Generator:
        return np.random.default_rng([self.batching.seed, epoch])

    def _joined(self, rows: np.ndarray) -> _Chosen:
        """Join rows of pairs `(n, k)`, of each as many as the lengths allow."""
        longest = self.batching.max_source_length, self.batching.max_target_length
        lengths = np.stack([self._source_lengths[rows], self._target_lengths[rows]], -1)
        present = np.all(np.cumsum(lengths, axis=1) <= longest, axis=-1)
        sentences = cast(Sentences, self.source)  # nothing else has words to join
        source, target = sentences.joined(rows, present), self._target.joined(rows, present)
        return _Chosen(source, target, np.arange(len(rows)), source.lengths, target.lengths)

    def _drawn(self, chosen: _Chosen, rng: np.random.Generator) -> _Chosen:
        """Draw the subwords of some pairs anew, where that is wanted."""
        if not any(self._samplers):
            return chosen
        sides = cast(Sentences, chosen.source).taken(chosen.rows), chosen.target.taken(chosen.rows)
        source, target = (
            sampler.draw(side, rng) if sampler else side
            for sampler, side in zip(self._samplers, sides, strict=True)
        )
        return _Chosen(source, target, np.arange(len(chosen.rows)), source.lengths, target.lengths)

    def _alike(self, rows: np.ndarray, size: int) -> _Alike:
        """Cut shuffled rows, `(n,)` or of several pairs `(n, k)`, into batches of like length.

        Images stay as shuffled: a batch of targets of one length has statistics that tell it, which
        batch normalisation would hand to the decoder in training alone.
        """
        if None not in self.source.shape[1:]:
            return _Alike(rows, size, ())
        return _Alike(rows, size, (self._source_lengths, self._target_lengths))


class OfTokens(Shuffled):
    """Batches of as many tokens each, not of as many pairs: of short sentences there are many.

    Every epoch has as many steps as the first would have: where its own order makes more batches,
    some are left out, and where fewer, some come twice.
    """

    def epoch(self, number: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch."""
        rng = self._random(number)
        filled = self._of_tokens(rng.permutation(self._rows))
        for position in np.resize(rng.permutation(len(filled)), self.statistics.steps_per_epoch):
            yield self._batch(self._drawn(self._single(filled[position]), rng))

    def _count_steps(self) -> int:
        return len(self._of_tokens(self._random(0).permutation(self._rows)))

    def _of_tokens(self, rows: np.ndarray) -> list[np.ndarray]:
        """Cut shuffled rows into batches of like length and of `batch_tokens` at most."""
        mean = np.maximum(self._source_lengths, self._target_lengths + 1)[self._rows].mean()
        window = max(1, int(_WINDOW * self.batching.batch_tokens / mean))
        return [
            batch
            for start in range(0, rows.size, window)
            for batch in self._filled(rows[start : start + window])
        ]

    def _filled(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        """Cut rows, sorted by their length, into batches of `batch_tokens` at most."""
        most, multiple = self.batching.batch_tokens, self.batching.length_multiple
        sides = self._source_lengths[rows], self._target_lengths[rows] + 1
        rows = rows[np.lexsort(sides)]
        longest = np.maximum(self._source_lengths[rows], self._target_lengths[rows] + 1)
        widths = -(-longest.astype(np.int64) // multiple) * multiple
        start = 0
        while start < rows.size:
            wide = np.maximum.accumulate(widths[start : start + max(1, most // int(widths[start]))])
            sizes = wide * np.arange(1, wide.size + 1)
            fit = max(1, int(np.count_nonzero(sizes <= most)))
            yield rows[start : start + fit]
            start += fit


def make_pair_batches(
    batching: Batching,
    source: Rows,
    target: Sentences,
    *,
    training: bool,
    samplers: Samplers = (None, None),
) -> PairBatches:
    """Return the batches of some pairs: shuffled for training, otherwise in order.

    Samplers draw the subwords of a side in training anew, see `training.data.subwords`.

    Raises:
        UserError: no pair is left.
    """
    count = len(source.lengths)
    if count != len(target.lengths):
        raise ValueError(
            f"Expected as many targets as sources, {count}. Received: {len(target.lengths)}"
        )
    if not training:
        return InOrder(batching, source, target)
    made = OfTokens if batching.batch_tokens else Shuffled
    return made(batching, source, target, samplers)


class _Alike:
    """Batches of `size` rows, `(n,)` or of several pairs `(n, k)`, of like length within a window.

    A window is sorted, by the lengths of all sources and targets in `sides`, when it is first read;
    without `sides` rows stay as they are.
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
