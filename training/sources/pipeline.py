"""Texts to batches of token ids, with tf.data."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from training.config.schema import Config
from training.data.batches import Batch, Batching, PairBatches, make_pair_batches
from training.data.pair_files import Split
from training.data.sentences import Rows, Sentences
from training.data.tokenizers import Tokenizer
from training.data.tokenizing import tokenize
from training.sources.events.batches import LabelBatches
from training.sources.source import Source
from training.sources.text.copying import tokenize_to_copy, vocabularies

Batches = PairBatches | LabelBatches
_PREFETCH = 8  # batches


def pair_rows(
    config: Config,
    split: Split,
    source: Source,
    target: Tokenizer,
    training: bool = False,
) -> tuple[Rows, Sentences]:
    """Read all pairs of a split: the rows of their sources and those of their targets.

    With `copy`, a target has the places of what it may copy from its source.
    """
    sources, targets = map(list, zip(*split.pairs(), strict=True))
    if config.copy:
        tokenizers = vocabularies(source, target)
        labels = tokenize_to_copy(sources, targets, tokenizers, config.max_source_length)
    else:
        labels = tokenize(targets, target)
    return source.rows(sources, training), labels


def make_batches(
    config: Config, split: Any, source: Source, target: Tokenizer | None, *, training: bool
) -> Batches:
    """Read a split, and return the batches of it that a configuration asks for.

    A split is what the source loads; there is no `target` for a label.
    """
    if target is not None:
        sides = pair_rows(config, split, source, target, training)
        return make_pair_batches(Batching.of(config), *sides, training=training)
    rows = source.rows(split, training)
    sizes = config.batch_size, config.seed
    return LabelBatches(rows, split.labels, *sizes, training=training)


def make_dataset(pairs: Batches, start_epoch: int = 0) -> tf.data.Dataset:
    """Make batches beside the training, from `start_epoch` on; for training without end."""

    def batches() -> Iterator[Batch]:
        for epoch in itertools.count(start_epoch) if pairs.training else [0]:
            yield from pairs.epoch(epoch)

    inputs, labels = pairs.signature
    specs = {name: tf.TensorSpec(*spec) for name, spec in inputs.items()}, tf.TensorSpec(*labels)
    dataset = tf.data.Dataset.from_generator(batches, output_signature=specs)
    if not pairs.training:
        steps = pairs.statistics.steps_per_epoch
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(steps))
    options = tf.data.Options()
    options.autotune.enabled = False  # its thread delays the end of an iterator by seconds
    return dataset.prefetch(_PREFETCH).with_options(options)


def source_batches(
    source: Rows, batch_size: int, max_source_length: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batches of sources for inference, the shortest first; empty texts are not in any.

    Yields:
        `(indices (b,), batch (b, …))`: which they are, and of texts int32 ids `(b, S)` padded with
        PAD_ID, cut after `max_source_length`.
    """
    lengths = np.minimum(source.lengths, max_source_length)
    order = np.argsort(lengths, kind="stable")
    order = order[lengths[order] > 0]
    for start in range(0, order.size, batch_size):
        rows = order[start : start + batch_size]
        yield rows, source.pad(rows, lengths[rows])
