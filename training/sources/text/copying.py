"""Targets whose unknown words are copied from the source."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf

from training.data.ids import END_ID, UNK_ID
from training.data.store import Sequences
from training.data.tokenizers import Tokenizer, VocabularyTokenizer, first_places
from training.data.tokenizing import in_chunks
from training.sources.source import Source

WORD = re.compile(r"\w+")
_HIDDEN = 0xE000  # the first of Unicode's private characters, which stand for no word
_CHUNK = 512  # texts at a time: each word is compared with all words of the other side


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

    def ids_of(chunk: slice) -> tf.RaggedTensor:
        words = tokenizers[0].split(tf.constant(sources[chunk], tf.string)).to_tensor()
        words = words[:, :max_source_length]
        text = tf.constant(targets[chunk], tf.string)
        ids, strings = tokenizers[1].tokenize(text), tokenizers[1].split(text)
        dense, places = ids.to_tensor(), first_places(strings.to_tensor(), words)
        found = (dense == UNK_ID) & (places < tf.shape(words)[1])
        dense = tf.where(found, tokenizers[1].vocab_size + places, dense)
        return tf.RaggedTensor.from_tensor(dense, lengths=ids.row_lengths())

    return in_chunks(len(targets), _CHUNK, ids_of)


def hide_names(
    sources: Sequence[str], targets: Sequence[str], share: float, seed: int, first: int = 0
) -> tuple[list[str], list[str]]:
    """Hide names and numbers that both texts of a pair have, so that they have to be copied.

    A vocabulary holds most names of a corpus, which are few, so that none of them would have to be.
    All such words are hidden in a `share` of the pairs, drawn by the seed: a character that stands
    for no word takes the place of each. The pairs are those of a corpus from its `first` on.
    """
    drawn = np.random.default_rng(seed).random(first + len(sources))[first:]
    chosen = drawn < share
    hidden = [list(sources), list(targets)]
    for i in np.flatnonzero(chosen).tolist():
        both = set(WORD.findall(sources[i])) & set(WORD.findall(targets[i]))
        names = sorted(w for w in both if w.isdecimal() or (w[0].isupper() and len(w) > 1))
        stand_in = {name: chr(_HIDDEN + n) for n, name in enumerate(names)}
        for texts in hidden:
            texts[i] = replace_words(texts[i], stand_in)
    return hidden[0], hidden[1]


def replace_words(text: str, others: Mapping[str, str]) -> str:
    """Put other words in the places of some."""
    return WORD.sub(lambda word: others.get(word[0], word[0]), text)


def begin_copying(model: keras.Model, source: Source, target: Tokenizer | None) -> None:
    """Give a new model the words that both vocabularies have."""
    model.get_layer("source_words").words.assign(shared_words(*vocabularies(source, target)))


def vocabularies(
    source: Source, target: Tokenizer | None
) -> tuple[VocabularyTokenizer, VocabularyTokenizer]:
    """Return the tokenizers of two texts that words can be copied between."""
    read = getattr(source, "tokenizer", None)
    assert isinstance(read, VocabularyTokenizer)  # as the configuration makes sure
    assert isinstance(target, VocabularyTokenizer)
    return read, target


def shared_words(source: VocabularyTokenizer, target: VocabularyTokenizer) -> np.ndarray:
    """The same word's id in the target's vocabulary, or -1, for each of the source's: int32."""
    ids = tf.range(source.vocab_size)
    found = target.ids(source.tokens(ids)).numpy()
    found[(found == UNK_ID) | (ids.numpy() <= END_ID)] = -1
    return found
