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
Gather = Callable[[tf.Tensor, Any], tf.Tensor]


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


def gatherer(examples: Any, longest: int) -> Gather:
    """Return a function from rows `(n, k)` and a least width to a padded batch of n examples.

    The k sequences of a row follow one another, each cut after `longest` steps; -1 stands for none.
    Examples of one size read themselves, by their own `read`. Gathering from a RaggedTensor would
    take longer the more it holds.
    """
    if not isinstance(examples, Sequences):
        return lambda rows, width: examples.read(rows[:, 0])
    arrays = examples.values, examples.starts, examples.lengths
    values, starts, lengths = map(tensor_of, arrays)
    dtype = tf.int32 if values.dtype.is_integer else values.dtype

    def gather(rows: tf.Tensor, width: Any) -> tf.Tensor:
        places = tf.maximum(rows, 0)
        many = tf.where(rows < 0, 0, tf.minimum(tf.gather(lengths, places), longest))
        first = tf.reshape(tf.gather(starts, places), [-1])
        ends = first + tf.cast(tf.reshape(many, [-1]), tf.int64)
        gathered = tf.cast(tf.gather(values, tf.ragged.range(first, ends).flat_values), dtype)
        ids = tf.RaggedTensor.from_row_lengths(gathered, tf.reduce_sum(many, 1), validate=False)
        dense = ids.to_tensor(examples.padding)  # its `shape` takes no tensor
        more = tf.maximum(width - tf.shape(dense)[1], 0)
        paddings = [[0, 0], [0, more], *[[0, 0]] * (len(dense.shape) - 2)]
        return tf.pad(dense, paddings, constant_values=examples.padding)

    return gather


def _maker(batches: Batches) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Batch]:
    """Return a function from rows, widths and a seed to a batch."""
    settings, target = batches.plan.batching, batches.target

    def draw(*planned: Any) -> tuple[np.ndarray, ...]:
        inputs, labels = batches.batch(*planned)
        return inputs["source"], inputs["target"], labels

    def make_drawn(*planned: tf.Tensor) -> Batch:  # subwords, which are drawn in Python
        ids = tf.numpy_function(draw, planned, [tf.int32] * 3)
        source, target, labels = (tf.ensure_shape(side, [None, None]) for side in ids)
        return {"source": source, "target": target}, labels

    if any(batches.samplers):
        return make_drawn
    gather_source = gatherer(batches.source, settings.max_source_length)
    if isinstance(target, np.ndarray):
        labels_of = tensor_of(target)
        return lambda rows, widths, seed: (
            {"source": gather_source(rows, widths[0])},
            tf.gather(labels_of, rows[:, 0]),
        )
    gather_target = gatherer(target, settings.max_target_length)

    def make(rows: tf.Tensor, widths: tf.Tensor, seed: tf.Tensor) -> Batch:
        ids = gather_target(rows, widths[1] - 1)
        inputs = tf.pad(ids, [[0, 0], [1, 0]], constant_values=START_ID)
        labels = tf.pad(ids, [[0, 0], [0, 1]], constant_values=PAD_ID)
        labels = tf.where((labels == PAD_ID) & (inputs != PAD_ID), END_ID, labels)
        return {"source": gather_source(rows, tf.maximum(widths[0], 1)), "target": inputs}, labels

    return make


def tensor_of(array: np.ndarray) -> tf.Tensor:
    """Return a tensor on the memory of an array, mapped or not; one that cannot be is copied."""
    with tf.init_scope(), tf.device("CPU"):
        if array.ctypes.data % _ALIGNED or not array.flags.writeable or not array.size:
            return tf.constant(array)
        return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
