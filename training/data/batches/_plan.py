"""The plan of an epoch, in NumPy: which pairs are in each batch, and how wide each batch is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from training.command.errors import UserError
from training.config.schema import Config
from training.data.batches._shapes import (
    FEW_SHAPES,
    STEPS,
    Costs,
    PredictedSeconds,
    choose_widths,
    predict_seconds,
)

_FREE_BUCKETS = 32  # buckets if batches may have any width: enough for low padding
_JOINED = (2, 4, 8)  # numbers of pairs that are joined to one example
_SAMPLE = 200_000  # most pairs whose lengths decide the widths
_GRID = 64  # candidate widths of each side


@dataclass(frozen=True)
class Batching:
    """The settings of batches."""

    batch_size: int  # pairs in a batch
    # most tokens of a source; longer pairs are dropped in training, and cut otherwise
    max_source_length: int
    max_target_length: int  # most tokens of a target, without START and END; likewise
    # most shapes of batches, a width of sources and a width of targets each; 0 for any
    batch_shapes: int = 0
    concat_pairs: float = 0.0  # share of training batches that hold joined pairs, 0 to 1
    # most tokens of a training batch, padding and START included, on the side that has more tokens;
    # a single pair may have more. 0 for batches of `batch_size` pairs
    batch_tokens: int = 0
    seed: int = 0  # seed of the order
    multiple: int = 1  # widths are multiples of this number if shapes are few
    # if set, predicted seconds choose the number of shapes, up to `batch_shapes`
    costs: Costs | None = None

    @classmethod
    def of(cls, config: Config) -> Batching:
        """Return the settings of a configuration; by default XLA compiles for few shapes."""
        import keras  # imported late: no command needs Keras before training

        from keras_attention import backend

        compiles = config.compiles()
        on_gpu = compiles and backend.on_gpu()
        costs = None
        if on_gpu and not config.batch_shapes:
            layers = config.encoder_layers + config.decoder_layers
            may_be_graph = keras.backend.backend() == "tensorflow" and config.jit_compile == "auto"
            costs = Costs(config.epochs, layers, may_be_graph)
        return cls(
            batch_size=config.batch_size,
            max_source_length=config.max_source_length,
            max_target_length=config.max_target_length,
            batch_shapes=config.batch_shapes or (FEW_SHAPES if compiles else 0),
            concat_pairs=config.concat_pairs,
            batch_tokens=config.batch_tokens,
            seed=config.seed,
            multiple=STEPS if on_gpu else 1,
            costs=costs,
        )

    def rounded(self, widths: Any) -> Any:
        """Return a width, or an array of widths, rounded up to a multiple of `multiple`."""
        return -(-widths // self.multiple) * self.multiple


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

    rows: np.ndarray  # pairs of all batches, one batch after another, `(pairs,)`; -1 for none
    starts: np.ndarray  # where each batch begins in `rows`, `(steps,)`
    sizes: np.ndarray  # how many of the rows each batch has, `(steps,)`
    joined: np.ndarray  # how many pairs make an example of each batch, `(steps,)`
    # least widths of source and labels, `(steps, 2)`; 0 if the longest example decides
    widths: np.ndarray


class EvaluationPlan:
    """The plan of a dev set: every pair once, in order. The last batch may be smaller.

    Args:
        batching: the settings.
        lengths: number of tokens of each source and of each target, both `(n,)`.
        shapes: widths of the training batches, `(shapes, 2)`, if these are few; None for any.
    """

    predicted: PredictedSeconds | None = None

    def __init__(
        self,
        batching: Batching,
        lengths: tuple[np.ndarray, np.ndarray],
        shapes: np.ndarray | None = None,
    ) -> None:
        count, size = len(lengths[0]), batching.batch_size
        longest = batching.max_source_length, batching.max_target_length
        # (n,) each
        source, target = (np.minimum(*side) for side in zip(lengths, longest, strict=True))
        starts = np.arange(0, count, size)  # (steps,)
        widths = np.zeros((len(starts), 2), np.int32)
        if shapes is not None and count:
            # (steps,) each
            needed = [np.maximum.reduceat(side, starts) for side in (source, target + 1)]
            last = batching.rounded(np.array([[longest[0], longest[1] + 1]]))
            shapes = np.concatenate([shapes, last])  # (shapes + 1, 2)
            fits = np.all(np.stack(needed, 1)[:, None] <= shapes, axis=2)  # (steps, shapes)
            widths = shapes[fits.argmax(1)].astype(np.int32)  # (steps, 2)
        self.batching, self.shapes = batching, shapes
        ones, rows = np.ones(len(starts), np.int32), np.arange(count, dtype=np.int32)
        self._epoch = Epoch(rows, starts, np.minimum(size, count - starts), ones, widths)
        tokens = int(source.sum()), int(target.sum()) + count
        self.statistics = Statistics(count, 0, *tokens, len(starts))

    def epoch(self, number: int = 0) -> Epoch:
        """Return the batches, which are the same in every epoch."""
        return self._epoch


class Plan:
    """The plan of training: batches of pairs of similar length, in a new order in each epoch.

    The order depends only on the seed and the epoch's number. Every pair occurs once in an epoch. A
    few pairs occur twice, to fill the last batch.

    With `concat_pairs`, a share of the batches, drawn anew in each epoch, holds longer examples:
    two, four or eight pairs one after another, source to source and target to target (Kondo et al.
    2021, arXiv 2104.08478). Such a batch also has `batch_size` pairs, and so has fewer rows. On a
    GPU, empty rows fill the batch.

    Args:
        batching: the settings.
        lengths: number of tokens of each source and of each target, both `(n,)`.
        rows: training pairs, `(m,)`; None for all.
        alike: whether a batch has pairs of similar length. Examples of one size stay in shuffled
            order: the statistics of a batch of targets of one length reveal the length, and batch
            normalisation would pass these statistics to the decoder, in training only.

    Attributes:
        shapes: widths of source and labels that batches have, int32 `(shapes, 2)`, ascending; None
            if batches may have any widths.
        predicted: predicted seconds of these shapes on a GPU; None if their number was given.

    Raises UserError if no pair is left.
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
                f"All {len(rows):,} pairs are too long or empty. The limits are {longest[0]} "
                f"source and {longest[1]} target tokens. Raise them: --set max_source_length=N "
                "--set max_target_length=N"
            )
        self._groups = [group for group in _JOINED if group <= batching.batch_size]
        self.shapes: np.ndarray | None = None
        self.predicted: PredictedSeconds | None = None
        # Widths of each bucket, (buckets, 2). For each pair of lengths, its place in the order of
        # batches, (source lengths, target lengths). The bucket of each place.
        self._widths, self._table = np.zeros((1, 2), np.int32), np.zeros((1, 1), np.int64)
        self._bucket_of = np.zeros(1, np.int64)
        if alike:
            self._make_buckets()
        elif batching.batch_shapes:
            source, labels = (
                side[self.rows] + end for side, end in zip(lengths, (0, 1), strict=True)
            )
            shape = batching.rounded(np.array([[source.max(), labels.max()]]))  # (1, 2)
            self._choose([shape], source, labels, np.ones(len(source), np.int32))
        self._keys = self._key(*lengths)
        tokens = [int(side[self.rows].sum(dtype=np.int64)) for side in lengths]
        self.statistics = Statistics(
            pairs=self.rows.size,
            dropped=len(rows) - self.rows.size,
            source_tokens=tokens[0],
            target_tokens=tokens[1] + self.rows.size,
            steps_per_epoch=len(self.epoch().sizes),
        )

    def epoch(self, number: int = 0) -> Epoch:
        """Return the batches of epoch `number`."""
        rng = np.random.default_rng([self.batching.seed, number])
        rows, size = rng.permutation(self.rows), self.batching.batch_size
        groups = self._groups
        joined = min(round(self.batching.concat_pairs * rows.size / size), rows.size // size)
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
        # an unused draw: it keeps the order of batches of recorded trainings
        rng.integers(1, 2**31, len(sizes))
        order = rng.permutation(len(sizes))
        return Epoch(rows, *(each[order] for each in (starts, sizes, joins, widths)))

    def _make_buckets(self) -> None:
        """Choose the widths of buckets, and number all pairs of lengths in the order of batches."""
        source, target = (side[self.rows] for side in self.lengths)
        longest = np.array([source.max(), target.max() + 1])
        if self.batching.concat_pairs:  # joined pairs may be as long as the limits
            longest = np.array(
                [self.batching.max_source_length, self.batching.max_target_length + 1]
            )
        few = self.batching.batch_shapes
        unit = self.batching.rounded(-(-int(longest.max()) // _GRID))
        some = np.arange(0, len(self.rows), -(-len(self.rows) // _SAMPLE))
        some = np.union1d(some, [source.argmax(), target.argmax()])  # the longest are in the sample
        source, labels, group = source[some], target[some] + 1, np.ones(1, np.int32)
        if few and self.batching.concat_pairs:
            source, labels, group = self._with_joined(source, labels - 1)
        longest = self.batching.rounded(longest)
        sizes = -(-source // unit), -(-labels // unit)
        made = choose_widths(*sizes, few or _FREE_BUCKETS)  # (shapes, 2) each, in units
        # (shapes, 2) each
        choices = [np.vstack([np.minimum(unit * each[:-1], longest), longest]) for each in made]
        self._widths = self._choose(choices, source, labels, group)
        if few and not self.batching.batch_shapes:  # without XLA, any widths
            return self._make_buckets()
        inside = [
            np.searchsorted(side, np.arange(end, side[-1] + 1))
            for side, end in zip(self._widths.T, (0, 1), strict=True)
        ]
        # first shape that fits, (source lengths, target lengths)
        self._table = np.maximum.outer(*inside)
        # Within a bucket, pairs are sorted by target length, then by source length.
        order = np.lexsort((*np.indices(self._table.shape).reshape(2, -1), self._table.ravel()))
        self._bucket_of = self._table.ravel()[order]
        self._table.ravel()[order] = np.arange(order.size)
        self._table = self._table.astype(np.min_scalar_type(self._table.max()))

    def _with_joined(
        self, source: np.ndarray, target: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the lengths of an epoch's examples, and how many pairs each example has.

        An example is repeated for each of its pairs, because every batch has equally many pairs.

        Args:
            source: number of tokens of each source, `(n,)`.
            target: number of tokens of each target, `(n,)`.

        Returns:
            Lengths of sources, lengths of labels, and numbers of pairs, all `(n,)`.
        """
        order = np.random.default_rng(self.batching.seed).permutation(len(source))
        made: list[tuple[np.ndarray, ...]] = []
        for group in self._groups:
            share = (
                int(self.batching.concat_pairs / len(self._groups) * len(source)) // group * group
            )
            part, order = np.split(order, [share])
            parts = part.reshape(-1, group)  # (examples, group)
            lengths = self._joined(source[parts], target[parts])[1]
            made.append((*(side.repeat(group) for side in lengths), np.full(share, group)))
        made.append((source[order], target[order], np.ones(len(order), np.int32)))
        source, target, groups = (np.concatenate(each) for each in zip(*made, strict=True))
        return source, target + 1, groups

    def _joined(
        self, source: np.ndarray, target: np.ndarray
    ) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
        """Return which pairs `(n, k)` fit in their example, and the examples' lengths `(n,)`."""
        longest = self.batching.max_source_length, self.batching.max_target_length
        pairs = zip((source, target), longest, strict=True)
        fits = [np.cumsum(side, 1) <= most for side, most in pairs]
        present = np.logical_and(*fits)
        return present, (np.where(present, source, 0).sum(1), np.where(present, target, 0).sum(1))

    def _choose(
        self, choices: list[np.ndarray], source: np.ndarray, labels: np.ndarray, group: np.ndarray
    ) -> np.ndarray:
        """Choose the shapes that take the least time, store their costs, and return their widths.

        Args:
            choices: the shapes of each choice, `(shapes, 2)`.
            source: source lengths of a sample of an epoch's examples, `(n,)`.
            labels: label lengths of the same examples, `(n,)`.
            group: how many joined pairs each example has, `(n,)`, or `(1,)` for all.
        """
        if self.batching.costs is not None:
            pairs, steps = len(self.rows) / len(source), []
            group = np.broadcast_to(group, source.shape)
            for shapes in choices:
                fits = [
                    np.searchsorted(w, x) for w, x in zip(shapes.T, (source, labels), strict=True)
                ]
                made = np.zeros(len(shapes), np.int64)
                for kind in np.unique(group):
                    places = np.maximum(*fits)[group == kind]
                    count = np.rint(np.bincount(places, minlength=len(shapes)) * pairs / kind)
                    many, left = _count_batches(count, self._sizes(shapes, kind))
                    # In an epoch, joined pairs fill whole batches: a rest is due to the sample.
                    many[-1] += left > 0 and (kind == 1 or self.batching.batch_tokens > 0)
                    made += many
                steps.append(made)
            best, self.predicted = predict_seconds(steps, choices, self.batching.costs)
            if self.predicted.graph is not None:
                self.batching = replace(self.batching, batch_shapes=0, multiple=1, costs=None)
            choices = choices[: best + 1]
        widths = choices[-1].astype(np.int32)
        if self.batching.batch_shapes:
            self.shapes = widths
        return widths

    def _sizes(self, widths: np.ndarray, group: int) -> np.ndarray:
        """Return how many examples of `group` pairs a batch of each shape has, `(shapes,)`."""
        if self.batching.batch_tokens:
            most = self.batching.batch_tokens // widths.max(axis=1).astype(np.int64)
            return np.maximum(1, most)
        return np.full(len(widths), max(1, self.batching.batch_size // group))

    def _batches(
        self, rows: np.ndarray, group: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return `rows`, `sizes`, `joined` and `widths` of the batches of pairs, see `Epoch`."""
        if group == 1:
            keys = self._keys[rows]
        else:
            rows = rows.reshape(-1, group)  # (examples, group)
            present, lengths = self._joined(*(side[rows] for side in self.lengths))
            rows, keys = np.where(present, rows, np.int32(-1)), self._key(*lengths)
        size = self._sizes(self._widths, group)
        # (buckets,)
        many, left = _count_batches(np.bincount(self._bucket_of[keys], minlength=len(size)), size)
        again = rows[:0]
        if left and many.any():  # repeat examples to fill the last batch
            again = rows[rng.integers(0, len(rows), size[-1] - left)]
        elif left:
            size[-1] = left
        many[-1] += left > 0
        rows = np.concatenate([rows[np.argsort(keys, kind="stable")], again])
        sizes, steps = np.repeat(size, many), int(many.sum())
        if group > 1 and self.batching.multiple > 1 and not self.batching.batch_tokens:
            # On a GPU, empty rows cost little, but another number of rows needs another program.
            rows = rows.reshape(steps, -1, group)  # (steps, batch rows, group)
            missing = self.batching.batch_size - rows.shape[1]
            rows = np.pad(rows, ((0, 0), (0, missing), (0, 0)), constant_values=-1)
            sizes[:] = self.batching.batch_size
        widths = np.zeros((steps, 2), np.int32)
        if self.shapes is not None:
            widths = np.repeat(self.shapes, many, axis=0)
        return rows.ravel(), sizes * group, np.full(steps, group, np.int32), widths

    def _key(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return the place of each example `(n,)`, by its lengths, in the order of batches."""
        last = np.array(self._table.shape) - 1
        return self._table[np.minimum(source, last[0]), np.minimum(target, last[1])]


def _count_batches(examples: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the number of full batches of each bucket `(buckets,)`, and the examples left over.

    Examples that do not fill a batch move to the next bucket.
    """
    many, left = np.zeros(len(sizes), np.int64), 0
    for bucket, count in enumerate(examples):
        many[bucket], left = divmod(count + left, sizes[bucket])
    return many, left
