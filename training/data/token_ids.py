"""Token ids of many texts, and of words that are to be copied from a source to its target."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from training.data.pair_files import number_of
from training.data.store import END_ID, TOGETHER, UNK_ID, Ids, Sequences, in_chunks
from training.data.tokenizers import Tokenizer, VocabularyTokenizer, first_places

WORD = re.compile(r"\w+")
_DRAWS = 1_000_000
_HIDDEN = 0xE000  # the first of Unicode's private characters, which stand for no word


def tokenize(texts: Sequence[str], tokenizer: Tokenizer) -> Sequences:
    """Return the token ids of all texts."""
    return Sequences.of(*tokenizer.encode(texts))


def tokenize_to_copy(
    sources: Sequence[str],
    targets: Sequence[str],
    tokenizers: Sequence[VocabularyTokenizer],
    max_source_length: int,
) -> Sequences:
    """Return the token ids of all targets.

    A token that the target's vocabulary of V lacks is `V + i` if the source has it, at place `i`
    first and within its length; otherwise it is UNK_ID.
    """

    def ids_of(chunk: slice) -> Ids:
        words = tokenizers[0].split(tf.constant(sources[chunk], tf.string))
        text = tf.constant(targets[chunk], tf.string)
        ids, strings = tokenizers[1].tokenize(text), tokenizers[1].split(text)
        places = first_places(strings, words)
        copied = (ids.flat_values == UNK_ID) & (places < max_source_length)
        values = tf.where(copied, tokenizers[1].vocab_size + places, ids.flat_values)
        return values.numpy(), ids.row_lengths().numpy()

    return Sequences.of(*in_chunks(len(targets), TOGETHER, ids_of))


def encode_to_copy(
    tokenizers: Sequence[Any], copying: tuple[float, int, int], pairs: Sequence[tuple[str, str]]
) -> tuple[Ids, Ids]:
    """Return the token ids of pairs whose names are hidden as by `hide_names`.

    `copying` has the share of such pairs, the longest source and the seed. Words that the
    vocabularies lack have ids above them, see `tokenize_to_copy`.
    """
    hidden, longest, seed = copying
    pairs = [hide_names(*pair, hidden, seed) for pair in pairs]
    sources, targets = ([pair[side] for pair in pairs] for side in range(2))
    labels = tokenize_to_copy(sources, targets, tokenizers, longest)
    return tokenizers[0].encode(sources), (labels.values, labels.lengths)


def hide_names(source: str, target: str, share: float, seed: int) -> tuple[str, str]:
    """Hide names and numbers that both texts of a pair have, so that they have to be copied.

    A vocabulary holds most names of a corpus, so that a model would not learn to copy. In a `share`
    of the pairs, drawn by a hash of the text and the seed, a character that stands for no word
    takes the place of each name.
    """
    if number_of(f"{seed}\t{source}\t{target}") % _DRAWS >= share * _DRAWS:
        return source, target
    both = set(WORD.findall(source)) & set(WORD.findall(target))
    names = sorted(w for w in both if w.isdecimal() or (w[0].isupper() and len(w) > 1))
    stand_in = {name: chr(_HIDDEN + n) for n, name in enumerate(names)}
    return replace_words(source, stand_in), replace_words(target, stand_in)


def replace_words(text: str, others: Mapping[str, str]) -> str:
    """Replace each word that is a key of `others` by its value."""
    return WORD.sub(lambda word: others.get(word[0], word[0]), text)


def shared_words(source: VocabularyTokenizer, target: VocabularyTokenizer) -> np.ndarray:
    """Return the target's id, or -1, of each word of the source's vocabulary: int32 `(V,)`."""
    ids = tf.range(source.vocab_size)
    shared = target.ids(source.tokens(ids)).numpy()
    shared[(shared == UNK_ID) | (ids.numpy() <= END_ID)] = -1
    return shared
