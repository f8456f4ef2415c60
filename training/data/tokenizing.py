"""Tokenizers are trained, and many texts tokenized."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from training.command.errors import ConfigError
from training.command.progress import progress, stages
from training.data.pieces import KIND, normalization
from training.data.store import Sequences
from training.data.tokenizers import Tokenizer, train_tokenizer


def make_tokenizer(side: str, kind: str, vocab_size: int, lines: Sequence[str]) -> Tokenizer:
    """Train the tokenizer of a side, "source" or "target", whose rule unifies characters.

    Raises:
        ConfigError: it cannot be trained with these settings.
    """
    options = {"normalization": normalization(side)} if kind == KIND else {}
    try:
        with stages(f"training the tokenizer of the {side} side"):
            made = train_tokenizer(kind, lines, vocab_size, **options)
    except ValueError as error:
        raise ConfigError(f"{side}_vocab_size={vocab_size}: {error}") from error
    return made


def tokenize(texts: Sequence[str], tokenizer: Tokenizer) -> Sequences:
    """Return the token ids of all texts."""
    chunk = 512 if tokenizer.copies else 8192  # words to be copied are compared with one another
    return in_chunks(
        len(texts), chunk, lambda part: tokenizer.tokenize(tf.constant(texts[part], tf.string))
    )


def in_chunks(count: int, chunk: int, ids_of: Callable[[slice], tf.RaggedTensor]) -> Sequences:
    """Return the token ids of so many texts, of which `ids_of` tokenizes a part at a time."""
    values, lengths = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    with progress(count, "texts tokenized") as advance:
        for start in range(0, count, chunk):
            ids = ids_of(slice(start, start + chunk))
            values.append(ids.values.numpy())
            lengths.append(ids.row_lengths().numpy())
            advance(int(ids.nrows()))
    return Sequences.of(np.concatenate(values), np.concatenate(lengths))
