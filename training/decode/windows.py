"""Windows for words that are longer than nearly all words of the training data.

A decoder that learned from short words loses the end of long words. A pronouncer outputs phones in
the order of the letters, so it can read a long word in windows of 12 letters. Three letters on each
side of a window are context; the other six are its core. Each window keeps the phones whose largest
attention weight is on a letter of its core.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_attention import SearchResult, backend
from training.data.store import END_ID, PAD_ID
from training.data.tokenizers import ALPHABETS
from training.runs.origin import read_origin
from training.runs.run import Run

WINDOW, CONTEXT = 12, 3  # letters
CORE = WINDOW - 2 * CONTEXT


class Spelling(NamedTuple):
    """How a pronouncer reads words; `whole` and `fewest` are measured on its training words."""

    whole: int  # a word of at most so many letters is read at once
    fewest: float  # nearly all words have at least so many phones a letter
    window: int = WINDOW
    context: int = CONTEXT


def spelling_of(runs: Sequence[Run]) -> Spelling | None:
    """Return how runs read words; None unless all are pronouncers that attend to letters."""
    for run in runs:
        config = run.config
        spells = config.source == "text" and config.source_tokenizer in ALPHABETS
        if not spells or config.target_tokenizer != "symbols" or config.attention == "none":
            return None
    origin = read_origin(runs[0].files)
    if origin is None or not origin.longest or runs[0].config.copy:
        return None
    return Spelling(max(WINDOW, origin.longest), origin.fewest)


class Windows(NamedTuple):
    """The windows of B words of at most S letters: K windows of W letters for each word."""

    ids: tf.Tensor  # int32 `(B * K, W)`; windows that a word does not need are padding
    starts: tf.Tensor  # int32 `(B, K)`, the first letter of a window
    cores: tf.Tensor  # int32 `(B, K, 2)`, the first letter of a core and the letter after its last
    last: tf.Tensor  # bool `(B, K)`, whether a window is the last one of its word
    length: tf.Tensor  # int32 `()`, S


def windows(ids: tf.Tensor, whole: int) -> Windows:
    """Split words of more than `whole` letters into windows; shorter words are one window.

    Args:
        ids: int32 `(B, S)`, padded with 0.
        whole: most letters of a word that is read at once.
    """
    lengths = tf.reduce_sum(tf.cast(ids != PAD_ID, tf.int32), axis=1)[:, None]  # (B, 1)
    length = tf.shape(ids)[1]
    count = tf.where(lengths > whole, _count(lengths), 1)
    # XLA needs a static number of windows, from the width of the batch.
    most = _count(length) if backend.under_xla() else tf.reduce_max(count)
    number = tf.range(tf.where(length > whole, most, 1)) + tf.zeros_like(lengths)
    last = number == count - 1
    first = number * CORE + tf.where(number > 0, CONTEXT, 0)
    end = tf.where(last, lengths, number * CORE + CORE + CONTEXT)
    end = tf.where(number < count, end, first)  # the core of an unneeded window is empty
    starts = tf.maximum(first - CONTEXT, 0)
    stops = tf.where(number < count, tf.minimum(end + CONTEXT, lengths), 0)
    places = starts[..., None] + tf.range(tf.minimum(whole, length))  # (B, K, W)
    taken = tf.gather(ids, tf.minimum(places, length - 1), batch_dims=1)
    taken = tf.where(places < stops[..., None], taken, PAD_ID)
    taken = tf.reshape(taken, [-1, tf.shape(places)[2]])
    return Windows(taken, starts, tf.stack([first, end], axis=2), last, length)


def _count(letters: tf.Tensor) -> tf.Tensor:
    """Return the number of windows that words of so many letters need."""
    return (letters - 2 * CONTEXT + CORE - 1) // CORE


def join(result: SearchResult, parts: Windows, penalty: float) -> SearchResult:
    """Join the results of windows to results of words.

    The n-th result of a word joins the n-th results of its windows. The score of a word with
    several windows is the score of the tokens that are kept, without a coverage penalty.

    Args:
        result: the results of all windows, `(B * K, N, T)`, with attention weights.
        parts: the windows.
        penalty: the length penalty, see `keras_attention.beam_search`.
    """
    batch, count = tf.unstack(tf.shape(parts.last))
    results, steps = tf.unstack(tf.shape(result.ids)[1:])

    def by_word(x: tf.Tensor) -> tf.Tensor:  # `(B * K, N, T, …)` to `(B, N, K * T, …)`
        x = tf.reshape(x, [batch, count, results, steps, *tf.unstack(tf.shape(x)[3:])])
        x = tf.transpose(x, [0, 2, 1, *range(3, len(x.shape))])
        return tf.reshape(x, [batch, results, count * steps, *tf.unstack(tf.shape(x)[4:])])

    def by_token(x: tf.Tensor) -> tf.Tensor:  # `(B, K)` to `(B, N, K * T)`
        return tf.repeat(tf.repeat(x, steps, axis=1)[:, None], results, axis=1)

    ids, weights = by_word(result.ids), by_word(result.attention_weights)
    starts = by_token(parts.starts)
    first, end = (by_token(parts.cores[..., side]) for side in (0, 1))
    looked = starts + tf.argmax(weights, axis=-1, output_type=tf.int32)
    kept = tf.where(ids == END_ID, by_token(parts.last), (looked >= first) & (looked < end))
    scores = tf.reshape(result.scores, [batch, count, results])
    found = tf.reduce_all(scores > -np.inf, axis=1)
    kept &= (ids != PAD_ID) & found[..., None]
    lengths = tf.reduce_sum(tf.cast(kept, tf.int32), axis=2)
    order = tf.argsort(tf.cast(~kept, tf.int32), axis=2, stable=True)
    if not backend.under_xla():
        order = order[..., : tf.maximum(tf.reduce_max(lengths), 1)]

    def chosen(x: tf.Tensor) -> tf.Tensor:
        return tf.gather(x, order, batch_dims=2)

    kept = chosen(kept)
    log_probs = tf.where(kept, chosen(by_word(result.log_probs)), 0.0)
    norm = ((5.0 + tf.cast(lengths, tf.float32)) / 6.0) ** penalty
    joined = tf.where(found, tf.reduce_sum(log_probs, axis=2) / norm, -np.inf)
    places = tf.range(parts.length) - chosen(starts)[..., None]
    width = tf.shape(weights)[3]
    weights = tf.gather(chosen(weights), tf.clip_by_value(places, 0, width - 1), batch_dims=3)
    there = (places >= 0) & (places < width) & kept[..., None]
    return SearchResult(
        tf.where(kept, chosen(ids), PAD_ID),
        lengths,
        tf.where(parts.last[:, :1], scores[:, 0], joined),
        tf.where(there, weights, 0.0),
        log_probs,
    )
