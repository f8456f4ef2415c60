"""The plan of an epoch, in NumPy: the pairs of each batch, and its widths."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from training.command.errors import UserError
from training.config.schema import Config

FEW_SHAPES = 8  # for a step that is compiled anew for each
_FREE_BUCKETS = 32  # where batches may have any width, so many keep padding low
_JOINED = (2, 4, 8)  # pairs that are joined to one
_SAMPLE = 200_000  # pairs whose lengths decide the widths
_GRID = 64  # widths to choose from, of each side


@dataclass(frozen=True)
class Batching:
    """The settings of batches: the configuration's keys of these names."""

    batch_size: int  # pairs in a batch
    # most tokens of a source; longer pairs are dropped in training and cut otherwise
    max_source_length: int
    max_target_length: int  # most tokens of a target, START and END not counted; likewise
    # most pairs of widths, of sources and of targets, that batches have; 0 for any
    batch_shapes: int = 0
    join: float = 0.0  # share of the batches in training that hold joined pairs, 0 to 1
    # most tokens in a batch for training, padding and START counted, of the side that has more; a
    # single pair may have more. 0 for batches of `batch_size`
    batch_tokens: int = 0
    seed: int = 0  # seed of the order

    @classmethod
    def of(cls, config: Config) -> Batching:
        """Return those of a configuration; a step that XLA compiles has few shapes by default."""
        settings = {field.name: getattr(config, field.name) for field in fields(cls)}
        if not config.batch_shapes and config.compiles():
            settings["batch_shapes"] = FEW_SHAPES
        return cls(**settings)


@dataclass(frozen=True)
class Statistics:
    """Counts of a dataset."""

    pairs: int  # sentence pairs in an epoch
    dropped: int  # pairs left out of training: too long, or empty on one side
    source_tokens: int  # source tokens of all pairs
    target_tokens: int  # labels of all pairs, END included
    steps_per_epoch: int  # batches in an epoch


class Epoch(NamedTuple):
    """The batches of an epoch."""

    rows: np.ndarray  # pairs of all batches, -1 for none
    starts: np.ndarray  # where each batch begins in `rows`, `(steps,)`
    sizes: np.ndarray  # how many of the rows each batch has, `(steps,)`
    joined: np.ndarray  # how many pairs make an example of each batch, `(steps,)`
    # least widths of source and labels, `(steps, 2)`; 0 for those of the longest
    widths: np.ndarray
    seeds: np.ndarray  # of what is drawn for each batch, `(steps,)`


class InOrder:
    """Plan of a dev set: every pair once, in order; the last batch may be smaller.

    Arguments are those of `Plan`, and `shapes`: the widths `(n, 2)` that the batches for training
    have, where these are few.
    """

    def __init__(
        self,
        batching: Batching,
        lengths: tuple[np.ndarray, np.ndarray],
        shapes: np.ndarray | None = None,
    ) -> None:
        count, size = len(lengths[0]), batching.batch_size
        longest = batching.max_source_length, batching.max_target_length
        source, target = (np.minimum(*side) for side in zip(lengths, longest, strict=True))
        starts = np.arange(0, count, size)
        widths = np.zeros((len(starts), 2), np.int32)
        if shapes is not None and count:
            needed = [np.maximum.reduceat(side, starts) for side in (source, target + 1)]
            shapes = np.concatenate([shapes, [[longest[0], longest[1] + 1]]])
            fits = np.all(np.stack(needed, 1)[:, None] <= shapes, axis=2)  # (steps, shapes)
            widths = shapes[fits.argmax(1)].astype(np.int32)
        self.batching, self.shapes = batching, shapes
        ones, rows = np.ones(len(starts), np.int32), np.arange(count, dtype=np.int32)
        self._epoch = Epoch(rows, starts, np.minimum(size, count - starts), ones, widths, ones)
        tokens = int(source.sum()), int(target.sum()) + count
        self.statistics = Statistics(count, 0, *tokens, len(starts))

    def epoch(self, number: int = 0, step: int = 0) -> Epoch:
        """Return the batches, the same in each epoch."""
        return self._epoch


class Plan:
    """Plans of all epochs: batches of pairs of like length, in another order in each.

    The order depends on the seed and the number of the epoch alone. Every pair comes once in an
    epoch; a few come twice, which fill the last batch.

    Where pairs are joined, another share of the batches in each epoch holds longer ones: two, four
    or eight pairs one after another, source to source and target to target (Kondo et al. 2021,
    arXiv 2104.08478). Such a batch is made of `batch_size` pairs, too, and so has fewer rows.

    Args:
        batching: the settings.
        lengths: tokens of each source and of each target.
        rows: pairs to learn from, `(n,)`; None for all.
        alike: whether batches have pairs of like length. Examples of one size stay as shuffled: a
            batch of targets of one length has statistics that tell it, which batch normalisation
            would hand to the decoder in training alone.

    Attributes:
        shapes: widths of source and labels that batches have, int32 `(n, 2)`, rising; None where
            they may have any.

    Raises:
        UserError: no pair is left.
    """

    def __init__(
        self,
        batching: Batching,
        lengths: tuple[np.ndarray, np.ndarray],
        rows: np.ndarray | None = None,
        alike: bool = True,
    ) -> None:
        self.batching, self.lengths = batching, lengths
        longest = batching.max_source_length, batching.max_target_length
        rows = np.arange(len(lengths[0]), dtype=np.int32) if rows is None else rows
        usable = np.ones(len(rows), bool)
        for side, most in zip(lengths, longest, strict=True):
            usable &= (side[rows] > 0) & (side[rows] <= most)
        self.rows = rows[usable].astype(np.int32)
        if not self.rows.size:
            raise UserError(
                f"None of {len(rows)} sentence pairs is usable: expected at most {longest[0]} "
                f"source and {longest[1]} target tokens, and at least one"
            )
        self.shapes: np.ndarray | None = None
        self._widths, self._table = np.zeros((1, 2), np.int32), np.zeros((1, 1), np.int64)
        self._bucket_of = np.zeros(1, np.int64)
        if alike:
            self._make_buckets()
        elif batching.batch_shapes:
            source, target = (int(side[self.rows].max()) for side in lengths)
            self.shapes = np.array([[source, target + 1]], np.int32)
        self._keys = self._key(*lengths)
        tokens = [int(side[self.rows].sum(dtype=np.int64)) for side in lengths]
        self.statistics = Statistics(
            pairs=self.rows.size,
            dropped=len(rows) - self.rows.size,
            source_tokens=tokens[0],
            target_tokens=tokens[1] + self.rows.size,
            steps_per_epoch=len(self.epoch().sizes),
        )

    def epoch(self, number: int = 0, step: int = 0) -> Epoch:
        """Return the batches of an epoch from a step on."""
        rng = np.random.default_rng([self.batching.seed, number])
        rows, size = rng.permutation(self.rows), self.batching.batch_size
        groups = [group for group in _JOINED if group <= size]
        joined = min(round(self.batching.join * rows.size / size), rows.size // size)
        made = []
        for number, group in enumerate(groups):
            batches = len(range(number, joined, len(groups)))
            part, rows = np.split(rows, [batches * (size // group) * group])
            if batches:
                made.append(self._batches(part, group, rng))
        if rows.size:
            made.append(self._batches(rows, 1, rng))
        rows, sizes, joins, widths = (np.concatenate(each) for each in zip(*made, strict=True))
        starts = np.cumsum(sizes) - sizes
        seeds = rng.integers(1, 2**31, len(sizes))
        order = rng.permutation(len(sizes))[step:]
        return Epoch(rows, *(each[order] for each in (starts, sizes, joins, widths, seeds)))

    def _make_buckets(self) -> None:
        """Choose widths, and the order in which pairs of lengths are sorted."""
        source, target = (side[self.rows] for side in self.lengths)
        longest = np.array([source.max(), target.max() + 1])
        if self.batching.join:  # joined pairs are as long as they may be
            longest = np.array(
                [self.batching.max_source_length, self.batching.max_target_length + 1]
            )
        unit = -(-int(longest.max()) // _GRID)
        some = slice(None, None, -(-len(self.rows) // _SAMPLE))
        sizes = -(-source[some] // unit), -(-(target[some] + 1) // unit)
        widths = unit * choose_widths(*sizes, self.batching.batch_shapes or _FREE_BUCKETS)
        widths[-1] = longest
        self._widths = np.minimum(widths, longest).astype(np.int32)
        inside = [
            np.searchsorted(side, np.arange(end, side[-1] + 1))
            for side, end in zip(self._widths.T, (0, 1), strict=True)
        ]
        self._table = np.maximum.outer(*inside)  # the first shape that each pair of lengths fits in
        if self.batching.batch_shapes:
            self.shapes = self._widths
        # Within a bucket pairs are sorted by their lengths.
        order = np.lexsort((*np.indices(self._table.shape).reshape(2, -1), self._table.ravel()))
        self._bucket_of = self._table.ravel()[order]
        self._table.ravel()[order] = np.arange(order.size)
        self._table = self._table.astype(np.min_scalar_type(self._table.max()))

    def _batches(
        self, rows: np.ndarray, group: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return rows, sizes, joined and widths of batches of some pairs, by their widths."""
        if group == 1:
            keys = self._keys[rows]
        else:
            rows = rows.reshape(-1, group)
            lengths = [side[rows] for side in self.lengths]
            longest = self.batching.max_source_length, self.batching.max_target_length
            fits = [np.cumsum(side, 1) <= most for side, most in zip(lengths, longest, strict=True)]
            present = np.logical_and(*fits)
            rows = np.where(present, rows, np.int32(-1))
            keys = self._key(*(np.where(present, side, 0).sum(1) for side in lengths))
        size = np.full(len(self._widths), max(1, self.batching.batch_size // group))
        if self.batching.batch_tokens:
            widths = self._widths.max(axis=1).astype(np.int64)
            size = np.maximum(1, self.batching.batch_tokens // widths)
        counts = np.bincount(self._bucket_of[keys], minlength=len(size))
        many, left = np.zeros(len(size), np.int64), 0
        for bucket, count in enumerate(counts):  # what is left of a bucket begins the next one
            many[bucket], left = divmod(count + left, size[bucket])
        again = rows[:0]
        if left and many.any():  # the last batch is filled
            again = rows[rng.integers(0, len(rows), size[-1] - left)]
        elif left:
            size[-1] = left
        many[-1] += left > 0
        rows = np.concatenate([rows[np.argsort(keys, kind="stable")], again])
        sizes, steps = np.repeat(size * group, many), int(many.sum())
        widths = np.zeros((steps, 2), np.int32)
        if self.shapes is not None:
            widths = np.repeat(self.shapes, many, axis=0)
        return rows.ravel(), sizes, np.full(steps, group, np.int32), widths

    def _key(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return what examples of these lengths are sorted by."""
        last = np.array(self._table.shape) - 1
        return self._table[np.minimum(source, last[0]), np.minimum(target, last[1])]


def choose_widths(source: np.ndarray, labels: np.ndarray, count: int) -> np.ndarray:
    """Choose at most `count` shapes with the least padding.

    A pair goes into the first shape that it fits in. The shapes are found by dynamic programming
    over the corners (s, t) of the histogram of lengths: with C pairs in a corner, the padded tokens
    are f(s, t) = min over smaller corners of f' + (C - C')(s + t).

    Args:
        source: length of each source, `(n,)`, from 1.
        labels: length of each target with its END, `(n,)`, from 1.
        count: most shapes.

    Returns:
        Widths of source and labels, int `(shapes, 2)`, both rising.
    """
    sizes = int(source.max()), int(labels.max())
    index = (np.maximum(source, 1).astype(np.int64) - 1) * sizes[1] + labels - 1
    histogram = np.bincount(index, minlength=sizes[0] * sizes[1]).reshape(sizes)
    within = histogram.cumsum(0).cumsum(1).astype(float)
    width = np.add.outer(np.arange(1, sizes[0] + 1), np.arange(1, sizes[1] + 1))
    costs = [within * width]  # of one shape, of two at most, …
    for _ in range(count - 1):
        best = costs[-1].copy()
        for total in range(2, sum(sizes) + 1):  # corners of one width have a minimum in common
            smaller = costs[-1] - within * total
            smaller = np.minimum.accumulate(np.minimum.accumulate(smaller, 0), 1)
            place = width == total
            best[place] = np.minimum(best[place], (smaller + within * total)[place])
        costs.append(best)
    corner = sizes[0] - 1, sizes[1] - 1
    chosen = [corner]
    for cost in costs[-2::-1]:
        smaller = (cost - within * width[corner])[: corner[0] + 1, : corner[1] + 1]
        row, column = np.unravel_index(smaller.argmin(), smaller.shape)
        corner = int(row), int(column)
        chosen.append(corner)
    return np.unique(np.array(chosen), axis=0) + 1
