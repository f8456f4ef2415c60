"""Texts to batches of token ids, with tf.data."""

import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from training.batches import Batch, PairBatches, Sentences
from training.text import Tokenizer

_PREFETCH = 8  # batches


def tokenize(texts: Sequence[str], tokenizer: Tokenizer, chunk: int = 8192) -> Sentences:
    """Return the token ids of all texts."""
    values, lengths = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    for start in range(0, len(texts), chunk):
        ids = tokenizer.tokenize(tf.constant(texts[start : start + chunk], tf.string))
        values.append(ids.values.numpy())
        lengths.append(ids.row_lengths().numpy())
    return Sentences.of(np.concatenate(values), np.concatenate(lengths))


def tokenize_pairs(
    pairs: Iterable[tuple[str, str]], tokenizers: Sequence[Tokenizer]
) -> tuple[Sentences, Sentences]:
    """Return the token ids of all sources and of all targets."""
    source, target = zip(*pairs, strict=True)
    return tokenize(source, tokenizers[0]), tokenize(target, tokenizers[1])


def make_dataset(pairs: PairBatches, start_epoch: int = 0) -> tf.data.Dataset:
    """Batches for teacher forcing, made beside the training; for training without end.

    Args:
        pairs: what a batch is.
        start_epoch: number of the first epoch, for a run that goes on.
    """

    def batches() -> Iterator[Batch]:
        for epoch in itertools.count(start_epoch) if pairs.training else [0]:
            yield from pairs.epoch(epoch)

    ids = tf.TensorSpec((None, None), tf.int32)
    dataset = tf.data.Dataset.from_generator(
        batches, output_signature=({"source": ids, "target": ids}, ids)
    )
    if not pairs.training:
        steps = pairs.statistics.steps_per_epoch
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(steps))
    options = tf.data.Options()
    options.autotune.enabled = False  # its thread delays the end of an iterator by seconds
    return dataset.prefetch(_PREFETCH).with_options(options)


def source_batches(
    texts: Sequence[str], tokenizer: Tokenizer, batch_size: int, max_source_length: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batches of source ids for inference, the shortest texts first.

    Args:
        texts: source texts.
        tokenizer: tokenizer of the sources.
        batch_size: texts in a batch.
        max_source_length: tokens after which a text is cut.

    Yields:
        `(indices (b,), ids (b, S))`: positions in `texts`, and int32 ids padded with PAD_ID, with
        S at least 1.
    """
    source = tokenize(texts, tokenizer)
    lengths = np.minimum(source.lengths, max_source_length)
    order = np.argsort(lengths, kind="stable")
    for start in range(0, order.size, batch_size):
        rows = order[start : start + batch_size]
        yield rows, source.pad(rows, lengths[rows])
