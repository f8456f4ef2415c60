"""Token ids of texts, and of words that are copied from a source to its target."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from training.data.read._sentences import number_of
from training.data.tokens.splitting import first_places
from training.data.tokens.store import END_ID, TOGETHER, UNK_ID, Ids, Sequences, in_chunks
from training.data.tokens.tokenizers import Tokenizer, VocabularyTokenizer

WORD = re.compile(r"\w+")
_DRAWS = 1_000_000
_HIDDEN = 0xE000  # the first private character of Unicode; private characters stand for no word


def tokenize(texts: Sequence[str], tokenizer: Tokenizer) -> Sequences:
    """Return the token ids of all texts."""
    return Sequences.of(*tokenizer.encode(texts))


def tokenize_to_copy(
    sources: Sequence[str],
    targets: Sequence[str],
    tokenizers: Sequence[VocabularyTokenizer],
    max_source_length: int,
) -> Sequences:
    """Return the token ids of all targets, with ids for copied tokens.

    The target's vocabulary has V ids. A token outside the vocabulary has id `V + i` if its first
    place in the source is `i`, below `max_source_length`; otherwise it has UNK_ID.
    """

    def ids_of(chunk: slice) -> Ids:
        words = tokenizers[0].split(tf.constant(sources[chunk], tf.string))
        text = tf.constant(targets[chunk], tf.string)
        ids, strings = tokenizers[1].tokenize(text), tokenizers[1].split(text)
        places = first_places(strings, words)  # (tokens,)
        copied = (ids.flat_values == UNK_ID) & (places < max_source_length)
        values = tf.where(copied, tokenizers[1].vocab_size + places, ids.flat_values)
        return values.numpy(), ids.row_lengths().numpy()

    return Sequences.of(*in_chunks(len(targets), TOGETHER, ids_of))


def encode_to_copy(
    tokenizers: Sequence[Any], copying: tuple[float, int, int], pairs: Sequence[tuple[str, str]]
) -> tuple[Ids, Ids]:
    """Return the token ids of pairs whose names are hidden by `hide_names`.

    `copying` is the share of pairs with hidden names, the longest source, and the seed. Words
    outside the vocabularies have ids above the vocabularies, see `tokenize_to_copy`.
    """
    hidden, longest, seed = copying
    pairs = [hide_names(*pair, hidden, seed) for pair in pairs]
    sources, targets = ([pair[side] for pair in pairs] for side in range(2))
    labels = tokenize_to_copy(sources, targets, tokenizers, longest)
    return tokenizers[0].encode(sources), (labels.values, labels.lengths)


def hide_names(source: str, target: str, share: float, seed: int) -> tuple[str, str]:
    """Return a pair in which names and numbers of both texts are hidden, so that they are copied.

    A vocabulary contains most names of a corpus, so that a model would not learn to copy names. In
    a `share` of the pairs, drawn by a hash of both texts and the seed, a private character, which
    stands for no word, replaces each name.
    """
    if number_of(f"{seed}\t{source}\t{target}") % _DRAWS >= share * _DRAWS:
        return source, target
    both = set(WORD.findall(source)) & set(WORD.findall(target))
    names = sorted(w for w in both if w.isdecimal() or (w[0].isupper() and len(w) > 1))
    stand_in = {name: chr(_HIDDEN + n) for n, name in enumerate(names)}
    return replace_words(source, stand_in), replace_words(target, stand_in)


def replace_words(text: str, others: Mapping[str, str]) -> str:
    """Return a text in which the values of `others` replace the words that are its keys."""
    return WORD.sub(lambda word: others.get(word[0], word[0]), text)


def shared_words(source: VocabularyTokenizer, target: VocabularyTokenizer) -> np.ndarray:
    """Return the target's id of each word of the source's vocabulary, or -1: int32 `(V,)`."""
    ids = tf.range(source.vocab_size)
    shared = target.ids(source.tokens(ids)).numpy()
    shared[(shared == UNK_ID) | (ids.numpy() <= END_ID)] = -1
    return shared
