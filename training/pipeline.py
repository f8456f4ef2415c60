"""Sentence pairs to batches of token ids, with tf.data."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from training.text import END_ID, PAD_ID, START_ID, Tokenizer

_WINDOW = 1000  # batches that are sorted by length together
_PREFETCH = 8  # batches


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


def make_dataset(
    sources: Sequence[str],
    targets: Sequence[str],
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    *,
    batch_size: int,
    max_source_length: int,
    max_target_length: int,
    training: bool,
    seed: int = 0,
    length_multiple: int = 1,
    start_epoch: int = 0,
) -> tuple[tf.data.Dataset, Statistics]:
    """Batches for teacher forcing, from pairs tokenised once and kept in memory.

    An element is `({"source": (B, S), "target": (B, T)}, labels (B, T))`, int32, padded with
    PAD_ID: `target` begins with START and `labels`, the same tokens one step earlier, end with
    END.

    For training, the dataset repeats for ever and each epoch has another order, which depends on
    `seed` and the number of the epoch alone. Batches hold sentences of similar length and are all
    of `batch_size` (what is left over, less than a batch, differs in each epoch). Otherwise every
    pair comes once, in the order given, and the last batch may be smaller.

    Args:
        sources: source texts.
        targets: target texts, as many.
        source_tokenizer: tokenizer of the sources.
        target_tokenizer: tokenizer of the targets.
        batch_size: sentence pairs in a batch.
        max_source_length: most tokens of a source; longer pairs are dropped in training and cut
            otherwise.
        max_target_length: most tokens of a target, START and END not counted; likewise.
        training: whether to shuffle, drop and repeat.
        seed: seed of the order.
        length_multiple: S and T are padded to a multiple of it.
        start_epoch: number of the first epoch, for a run that goes on.

    Raises:
        ValueError: sources and targets differ in number, or no pair is left.
    """
    if len(sources) != len(targets):
        raise ValueError(f"Expected as many targets as sources, {len(sources)}: {len(targets)}")
    source = _tokenize(sources, source_tokenizer)
    target = _tokenize(targets, target_tokenizer)
    rows = np.arange(len(sources))
    if training:
        rows = rows[
            (source.lengths > 0)
            & (target.lengths > 0)
            & (source.lengths <= max_source_length)
            & (target.lengths <= max_target_length)
        ]
    if not rows.size:
        raise ValueError(
            f"None of {len(sources)} sentence pairs is usable: expected at most "
            f"{max_source_length} source and {max_target_length} target tokens, and at least one"
        )
    source_lengths = np.minimum(source.lengths, max_source_length)
    target_lengths = np.minimum(target.lengths, max_target_length)

    def batch(rows: np.ndarray):
        sources = source.pad(rows, source_lengths[rows], length_multiple)
        labels = target.pad(rows, target_lengths[rows], length_multiple, end=True)
        inputs = np.roll(labels, 1, axis=1)
        inputs[:, 0] = START_ID
        inputs[inputs == END_ID] = PAD_ID
        return {"source": sources, "target": inputs}, labels

    def batches() -> Iterator:
        if not training:
            for start in range(0, rows.size, batch_size):
                yield batch(rows[start : start + batch_size])
            return
        epoch = start_epoch
        while True:
            rng = np.random.default_rng([seed, epoch])
            for chosen in _plan_epoch(rows, source_lengths, target_lengths, batch_size, rng):
                yield batch(chosen)
            epoch += 1

    steps = max(1, rows.size // batch_size) if training else -(-rows.size // batch_size)
    ids = tf.TensorSpec((None, None), tf.int32)
    dataset = tf.data.Dataset.from_generator(
        batches, output_signature=({"source": ids, "target": ids}, ids)
    )
    if not training:
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(steps))
    options = tf.data.Options()
    options.autotune.enabled = False  # its thread delays the end of an iterator by seconds
    statistics = Statistics(
        pairs=int(rows.size),
        dropped=len(sources) - int(rows.size),
        source_tokens=int(source_lengths[rows].sum()),
        target_tokens=int(target_lengths[rows].sum() + rows.size),
        steps_per_epoch=steps,
    )
    return dataset.prefetch(_PREFETCH).with_options(options), statistics


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
    source = _tokenize(texts, tokenizer)
    lengths = np.minimum(source.lengths, max_source_length)
    order = np.argsort(lengths, kind="stable")
    for start in range(0, order.size, batch_size):
        rows = order[start : start + batch_size]
        yield rows, source.pad(rows, lengths[rows])


@dataclass(frozen=True)
class _Sentences:
    """Token ids of many sentences, one after another."""

    values: np.ndarray  # (tokens + 1,) int32; the last one is never read as a token
    starts: np.ndarray  # (sentences,) int64
    lengths: np.ndarray  # (sentences,) int64

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


def _tokenize(texts: Sequence[str], tokenizer: Tokenizer, chunk: int = 8192) -> _Sentences:
    values, lengths = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    for start in range(0, len(texts), chunk):
        ids = tokenizer.tokenize(tf.constant(texts[start : start + chunk], tf.string))
        values.append(ids.values.numpy())
        lengths.append(ids.row_lengths().numpy())
    lengths = np.concatenate(lengths)
    starts = np.cumsum(lengths) - lengths
    return _Sentences(np.concatenate([*values, [np.int32(PAD_ID)]]), starts, lengths)


def _plan_epoch(
    rows: np.ndarray,
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
    batch_size: int,
    rng: np.random.Generator,
) -> list[np.ndarray]:
    """Rows of each batch of one epoch: shuffled, similar lengths together, batches shuffled."""
    rows = rng.permutation(rows)[: max(1, rows.size // batch_size) * batch_size]
    batches = []
    for start in range(0, rows.size, _WINDOW * batch_size):
        window = rows[start : start + _WINDOW * batch_size]
        order = np.lexsort((source_lengths[window], target_lengths[window]))
        batches += [window[order[i : i + batch_size]] for i in range(0, order.size, batch_size)]
    return [batches[i] for i in rng.permutation(len(batches))]
