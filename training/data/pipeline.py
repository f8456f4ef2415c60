"""Batches by tf.data, which makes them ahead of their steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from training.data.batches import Batches
from training.data.store import Sequences

_PREFETCH = 8  # batches that are made ahead


def make_dataset(batches: Batches, number: int = 0, step: int = 0) -> tf.data.Dataset:
    """Return the batches of an epoch, from a step on; they are those of `Batches.epoch`."""

    def spec(array: Any, sequences: bool) -> tf.TensorSpec:
        shape = [None, *([None] if sequences else array.shape[1:2]), *array.shape[2:]]
        return tf.TensorSpec(shape[: len(array.shape)], array.dtype)

    inputs, labels = batches.batch(np.zeros((1, 1), np.int32), np.zeros(2, np.int32), 1)
    is_sequence = {"source": isinstance(batches.source, Sequences), "target": True}
    specs = {name: spec(array, is_sequence[name]) for name, array in inputs.items()}
    dataset = tf.data.Dataset.from_generator(
        lambda: batches.epoch(number, step), output_signature=(specs, spec(labels, True))
    )
    steps = batches.statistics.steps_per_epoch - step
    options = tf.data.Options()
    options.autotune.enabled = False  # its thread delays the end of an iterator by seconds
    counted = dataset.apply(tf.data.experimental.assert_cardinality(steps))
    return counted.prefetch(_PREFETCH).with_options(options)
