"""Texts in TensorFlow's graph: cleaned, and split into words, letters or symbols."""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from training.data.rules import (
    ALPHABETS,
    GOES_ON,
    IDEOGRAPH,
    LETTER,
    MARK,
    MARKS,
    SPACES,
    WHITE,
    WORD,
    pattern,
)

_WORD = pattern(WORD, IDEOGRAPH, LETTER)
INSIDE = pattern(GOES_ON, IDEOGRAPH, LETTER)  # characters that continue the word before them


def first_places(tokens: tf.RaggedTensor, others: tf.RaggedTensor) -> tf.Tensor:
    """Return the first place of each token in `others` of its text, both ragged `(B, None)`.

    Places are flat int32 `(tokens,)`, and the largest int32 for a token that `others` lacks. Memory
    is linear in the number of tokens.
    """
    sides = others, tokens
    texts = tf.strings.as_string(tf.concat([side.value_rowids() for side in sides], 0))
    keys = tf.strings.join([texts, tf.concat([side.flat_values for side in sides], 0)], " ")
    words, numbers = tf.unique(keys)  # a number for each different pair of text and token
    count = tf.size(others.flat_values)
    places = tf.ragged.range(tf.cast(others.row_lengths(), tf.int32)).flat_values  # (others,)
    first = tf.math.unsorted_segment_min(places, numbers[:count], tf.size(words))
    return tf.gather(first, numbers[count:])  # (tokens,)


@functools.cache
def character_classes() -> dict[str, list[tuple[int, int]]]:
    """Return the character classes by which `words` splits, for programs without TensorFlow.

    Each class is a list of runs, with the first and the last code point of each run. `ideographs`
    are words, `letters` make words, and `spaces` separate words.
    """
    classes = {"ideographs": IDEOGRAPH, "letters": LETTER, "spaces": SPACES}
    codes = np.array([code for code in range(0x110000) if not 0xD800 <= code < 0xE000])
    characters = tf.strings.unicode_encode(codes[:, None].astype("int32"), "UTF-8")
    runs = {}
    for name, rule in classes.items():
        inside = codes[tf.strings.regex_full_match(characters, rule).numpy()]
        ends = np.flatnonzero(np.diff(inside, append=-1) != 1)
        starts = np.concatenate([[0], ends[:-1] + 1])
        runs[name] = list(zip(inside[starts].tolist(), inside[ends].tolist(), strict=True))
    return runs


def composed(kind: str, text: tf.Tensor) -> tf.Tensor:
    """Return the text of joined tokens: for `letters`, in composed characters (NFC)."""
    return tf_text.normalize_utf8(text, "NFC") if kind == "letters" else text


def clean_text(text: tf.Tensor) -> tf.Tensor:
    """Return texts cleaned as by `rules.clean`; invalid UTF-8 becomes U+FFFD."""
    text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")
    return tf_text.normalize_utf8(single_spaces(text), "NFC")


def single_spaces(text: tf.Tensor) -> tf.Tensor:
    """Return texts with single spaces and without byte order marks, as `rules.single_spaces`."""
    text = tf.strings.regex_replace(text, "\ufeff", "")
    return tf.strings.strip(tf.strings.regex_replace(text, WHITE, " "))


def whole_letters(text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the letters of texts `(B,)` in NFC, each with its marks, as in `letters.letters_of`.

    Returns the letters `(letters,)`, the number of the text of each, and B.
    """
    characters = tf.strings.unicode_split(text, "UTF-8")
    flat, texts = characters.flat_values, characters.value_rowids()
    is_mark = tf.strings.regex_full_match(flat, f"[{MARKS}]")
    begins = ~is_mark | (texts != tf.concat([[-1], tf.cast(texts[:-1], tf.int64)], 0))
    numbers = tf.cumsum(tf.cast(begins, tf.int32)) - 1
    letters = tf.strings.unsorted_segment_join(flat, numbers, tf.math.count_nonzero(begins))
    return letters, tf.boolean_mask(texts, begins), characters.nrows()


def split_text(kind: str, text: tf.Tensor) -> tf.RaggedTensor:
    """Return token strings, ragged `(B, None)`, of valid UTF-8 texts `(B,)`."""
    if kind in ALPHABETS:
        if kind == "letters":
            text = tf_text.normalize_utf8(text, "NFD")
        return tf.strings.unicode_split(text, "UTF-8")
    if kind == "symbols":
        return tf.strings.split(text)
    text = tf.strings.strip(tf.strings.regex_replace(text, SPACES, " "))
    text = tf.strings.regex_replace(text, "^(.)", r" \1")  # a mark for the first word, too
    return tf_text.regex_split(tf.strings.regex_replace(text, " ", MARK), _WORD, _WORD)
