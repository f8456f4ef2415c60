"""Batches by tf.data: a plan gives rows, TensorFlow's operations gather and pad them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from training.data.batches import Batch, Batches
from training.data.store import END_ID, PAD_ID, START_ID, Sequences

_ALIGNED = 64  # bytes: TensorFlow ends the process at a tensor that lies otherwise
_PARALLEL, _PREFETCH = 2, 8  # batches that are made at once, and ahead
Reader = Callable[[tf.Tensor, Any], tf.Tensor]


def make_dataset(batches: Batches, number: int = 0, step: int = 0) -> tf.data.Dataset:
    """Return the batches of an epoch, from a step on; they are those of `Batches.epoch`."""
    with tf.device("CPU"):
        rows, starts, sizes, joined, widths, seeds = map(
            tf.constant, batches.plan.epoch(number, step)
        )
        make = _maker(batches)

    def planned(at: tf.Tensor) -> Batch:
        chosen = rows[starts[at] : starts[at] + sizes[at]]
        return make(tf.reshape(chosen, tf.stack([-1, joined[at]])), widths[at], seeds[at])

    planned = tf.autograph.experimental.do_not_convert(planned)  # it has nothing to convert
    dataset = tf.data.Dataset.range(len(joined)).map(planned, _PARALLEL, deterministic=True)
    options = tf.data.Options()
    options.autotune.enabled = False  # its thread delays the end of an iterator by seconds
    options.experimental_optimization.apply_default_optimizations = False  # they copy the arrays
    return dataset.prefetch(_PREFETCH).with_options(options)


def reader(examples: Any, longest: int) -> Reader:
    """Return a function from rows `(n, k)` and a least width to a padded batch of n examples.

    The k sequences of a row follow one another, each cut after `longest` steps; -1 stands for none.
    Examples of one size read themselves, by their own `read`.
    """
    if not isinstance(examples, Sequences):
        return lambda rows, width: examples.read(rows[:, 0])
    gather = _gatherer(examples, longest)
    return lambda rows, width: _padded(gather(rows), width, examples.padding)


def _maker(batches: Batches) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Batch]:
    """Return a function from rows, widths and a seed to a batch."""
    settings, target = batches.plan.batching, batches.target
    if any(batches.samplers):
        return _drawn(batches)
    source = reader(batches.source, settings.max_source_length)
    if isinstance(target, np.ndarray):
        labels_of = tensor_of(target)
        return lambda rows, widths, seed: (
            {"source": source(rows, widths[0])},
            tf.gather(labels_of, rows[:, 0]),
        )
    gather = _gatherer(target, settings.max_target_length)

    def make(rows: tf.Tensor, widths: tf.Tensor, seed: tf.Tensor) -> Batch:
        ids = gather(rows)
        lengths = tf.cast(ids.row_lengths(), tf.int32)
        width = tf.maximum(tf.reduce_max(lengths) + 1, widths[1])
        labels = _padded(ids, width, PAD_ID)
        labels = tf.where(tf.range(tf.shape(labels)[1]) == lengths[:, None], END_ID, labels)
        inputs = tf.pad(labels[:, :-1], [[0, 0], [1, 0]], constant_values=START_ID)
        inputs = tf.where(inputs == END_ID, PAD_ID, inputs)
        return {"source": source(rows, widths[0]), "target": inputs}, labels

    return make


def _drawn(batches: Batches) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Batch]:
    """Return a function to batches whose subwords are drawn, which SentencePiece does in Python."""

    def draw(rows: np.ndarray, widths: np.ndarray, seed: np.ndarray) -> tuple[np.ndarray, ...]:
        inputs, labels = batches.batch(rows, widths, int(seed))
        return inputs["source"], inputs["target"], labels

    def make(rows: tf.Tensor, widths: tf.Tensor, seed: tf.Tensor) -> Batch:
        ids = tf.numpy_function(draw, [rows, widths, seed], [tf.int32] * 3)
        source, target, labels = (tf.ensure_shape(side, [None, None]) for side in ids)
        return {"source": source, "target": target}, labels

    return make


def _gatherer(sequences: Sequences, longest: int) -> Callable[[tf.Tensor], tf.RaggedTensor]:
    """Return a function from rows `(n, k)` to n sequences.

    Gathering from a RaggedTensor takes longer the more it holds.
    """
    values, starts, lengths = map(
        tensor_of, (sequences.values, sequences.starts, sequences.lengths)
    )
    dtype = tf.int32 if values.dtype.is_integer else values.dtype

    def gather(rows: tf.Tensor) -> tf.RaggedTensor:
        places = tf.maximum(rows, 0)
        many = tf.where(rows < 0, 0, tf.minimum(tf.gather(lengths, places), longest))
        first = tf.reshape(tf.gather(starts, places), [-1])
        steps = tf.ragged.range(
            first, first + tf.cast(tf.reshape(many, [-1]), tf.int64)
        ).flat_values
        gathered = tf.cast(tf.gather(values, steps), dtype)
        return tf.RaggedTensor.from_row_lengths(gathered, tf.reduce_sum(many, 1), validate=False)

    return gather


def _padded(ids: tf.RaggedTensor, width: Any, value: float) -> tf.Tensor:
    """Return sequences as one tensor of this width at least."""
    dense = ids.to_tensor(value)  # its `shape` takes no tensor
    width = tf.maximum(tf.shape(dense)[1], tf.maximum(width, 1))
    more = [[0, 0], [0, width - tf.shape(dense)[1]], *[[0, 0]] * (len(dense.shape) - 2)]
    return tf.pad(dense, more, constant_values=value)


def tensor_of(array: np.ndarray) -> tf.Tensor:
    """Return a tensor on the memory of an array, mapped or not; one that cannot be is copied."""
    with tf.init_scope(), tf.device("CPU"):
        if array.ctypes.data % _ALIGNED or not array.flags.writeable or not array.size:
            return tf.constant(array)
        return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
