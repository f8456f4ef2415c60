"""Windows for words that are longer than nearly all words of the training data.

A decoder that learned from short words loses the end of long words. A pronouncer outputs phones in
the order of the letters, so it can read a long word in windows of 12 letters. Three letters on each
side of a window are context; the other six are its core. Each window keeps the phones whose largest
attention weight is on a letter of its core. If nearly all words of training are shorter than 12
letters, windows are as long as these words, and a quarter of a window is the context on each side.

A tag in front of the word, such as "[cy] ", is in front of each of its windows. Its letters do not
count. A phone whose largest weight is on the tag counts for the first letter of its window.

`serving.portable.read._windows` and `engine/windows.js` do the same without TensorFlow;
`tests/serving/portable/windows.json` is the table of cases that holds all three together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_attention import SearchResult, backend
from training.data.tokens.store import END_ID, PAD_ID
from training.data.tokens.tokenizers import ALPHABETS
from training.runs._origin import read_origin
from training.runs.run import Run

WINDOW = 12  # most letters of a window
SHARE = 4  # one letter of so many in a window is context, on each side


class Spelling(NamedTuple):
    """How a pronouncer reads words, measured on its training words."""

    whole: int  # a word of at most so many letters is read at once
    fewest: float  # nearly all words have at least so many phones a letter
    window: int  # letters of a window of a longer word
    context: int  # letters of a window, on each side, whose phones are not kept
    tag: Mapping[str, int] | None = None  # of words with tags: see `training.data.rules.tag_length`

    @classmethod
    def of(cls, longest: int, fewest: float, tag: Mapping[str, int] | None = None) -> Spelling:
        """Return how words are read; nearly all training words have up to `longest` letters."""
        window = min(WINDOW, longest)
        return cls(longest, fewest, window, window // SHARE, tag)

    def entry(self) -> dict[str, Any]:
        """Return the entry `spelling` of a manifest."""
        return {name: value for name, value in self._asdict().items() if value is not None}


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
    tag = runs[0].source_tokenizer.tag(origin.tag) if origin.tag else None
    return Spelling.of(origin.longest, origin.fewest, tag)


class Windows(NamedTuple):
    """The windows of B words of at most S letters: K windows for each word, padded to W letters.

    Letters are counted from the first one after the tag.
    """

    ids: tf.Tensor  # int32 `(B * K, W)`; windows that a word does not need are padding
    tags: tf.Tensor  # int32 `(B, 1)`, letters of the tag in front of all windows of a word
    starts: tf.Tensor  # int32 `(B, K)`, the first letter of a window
    cores: tf.Tensor  # int32 `(B, K, 2)`, the first letter of a core and the letter after its last
    last: tf.Tensor  # bool `(B, K)`, whether a window is the last one of its word
    needed: tf.Tensor  # bool `(B, K)`, whether a window is one of its word
    length: tf.Tensor  # int32 `()`, S


def tag_lengths(ids: tf.Tensor, tag: Mapping[str, int] | None) -> tf.Tensor:
    """Return the number of ids of each word's tag, int32 `(B,)`: `tag_length` of `(B, S)` ids."""
    if tag is None:
        return tf.zeros_like(ids[:, 0])
    closes = tf.cast(ids == tag["close"], tf.int32)
    size = tf.argmax(closes, axis=1, output_type=tf.int32) + 1
    after = tf.gather(ids, tf.minimum(size, tf.shape(ids)[1] - 1), batch_dims=1)
    size += tf.cast(after == tag["space"], tf.int32)
    there = (ids[:, 0] == tag["open"]) & (tf.reduce_max(closes, axis=1) > 0)
    there &= (size <= tag["longest"]) & (size < _lengths(ids))
    return tf.where(there, size, 0)


def are_long(ids: tf.Tensor, spelling: Spelling) -> tf.Tensor:
    """Return whether words, int32 `(B, S)`, are read in several windows: bool `(B,)`."""
    return _lengths(ids) - tag_lengths(ids, spelling.tag) > spelling.whole


def _lengths(ids: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.cast(ids != PAD_ID, tf.int32), axis=1)


def windows(ids: tf.Tensor, spelling: Spelling) -> Windows:
    """Split words that are too long into windows; shorter words are one window.

    Args:
        ids: int32 `(B, S)`, padded with 0.
        spelling: the lengths of words and windows.
    """
    whole, _, window, context, tag = spelling
    core = window - 2 * context

    def count_of(letters: tf.Tensor) -> tf.Tensor:
        """Return the number of windows that words of so many letters need."""
        return (letters - 2 * context + core - 1) // core

    long = are_long(ids, spelling)[:, None]  # (B, 1)
    tags = tf.where(long, tag_lengths(ids, tag)[:, None], 0)  # a word of one window keeps its own
    lengths = _lengths(ids)[:, None] - tags
    length = tf.shape(ids)[1]
    count = tf.where(long, count_of(lengths), 1)
    # XLA needs a static number of windows, from the width of the batch.
    most = count_of(length) if backend.under_xla() else tf.reduce_max(count)
    number = tf.range(tf.where(length > whole, most, 1)) + tf.zeros_like(lengths)
    needed, last = number < count, number == count - 1
    first = number * core + tf.where(number > 0, context, 0)
    end = tf.where(last, lengths, number * core + core + context)
    end = tf.where(needed, end, first)  # the core of an unneeded window is empty
    starts = tf.maximum(first - context, 0)
    stops = tf.where(needed, tf.minimum(end + context, lengths), 0)
    width = tf.minimum(whole + (tag["longest"] if tag else 0), length)
    columns, front = tf.range(width), tags[..., None]
    places = tf.where(columns < front, columns, starts[..., None] + columns)  # (B, K, W)
    taken = tf.gather(ids, tf.minimum(places, length - 1), batch_dims=1)
    inside = (places < front + stops[..., None]) & needed[..., None]
    taken = tf.where(inside, taken, PAD_ID)
    taken = tf.reshape(taken, [-1, width])
    return Windows(taken, tags, starts, tf.stack([first, end], axis=2), last, needed, length)


def join(result: SearchResult, parts: Windows) -> SearchResult:
    """Join the results of windows to results of words, the best first.

    A result of a word joins one result of each window. Its score is the mean of their scores, so
    the first result joins the first results. Results with the same tokens are one result; if fewer
    than N are left, the others are empty, with the score -inf.

    Args:
        result: the results of all windows, `(B * K, N, T)`, with attention weights.
        parts: the windows.
    """
    batch, count = tf.unstack(tf.shape(parts.last))
    results, steps = tf.unstack(tf.shape(result.ids)[1:])

    def by_window(x: tf.Tensor) -> tf.Tensor:  # `(B * K, N, …)` to `(B, K, N, …)`
        return tf.reshape(x, tf.concat([[batch, count, results], tf.shape(x)[2:]], 0))

    ids, weights = by_window(result.ids), by_window(result.attention_weights)
    starts = tf.broadcast_to(parts.starts[..., None, None], tf.shape(ids))
    front = parts.tags[..., None, None]
    looked = tf.argmax(weights, axis=-1, output_type=tf.int32)  # (B, K, N, T)
    looked = starts + tf.maximum(looked - front, 0)
    first, end = (parts.cores[..., side][..., None, None] for side in (0, 1))
    kept = tf.where(ids == END_ID, parts.last[..., None, None], (looked >= first) & (looked < end))
    kept &= ids != PAD_ID
    several = ~parts.last[:, :1, None]  # (B, 1, 1), whether a word has several windows
    scores = tf.where(several & _repeats(ids, kept), -np.inf, by_window(result.scores))
    unneeded = tf.where(tf.range(results) == 0, 0.0, -np.inf)
    chosen, totals = _best_sums(tf.where(parts.needed[..., None], scores, unneeded))

    def by_word(x: tf.Tensor) -> tf.Tensor:  # `(B, K, N, T, …)` to `(B, N, K * T, …)`
        x = tf.gather(x, chosen, batch_dims=2)
        x = tf.transpose(x, [0, 2, 1, *range(3, len(x.shape))])
        return tf.reshape(x, tf.concat([[batch, results, count * steps], tf.shape(x)[4:]], 0))

    kept = by_word(kept) & (totals > -np.inf)[..., None]
    ids = by_word(ids)
    totals = tf.where(several[..., 0] & _repeats(ids, kept), -np.inf, totals)  # (B, N)
    kept &= (totals > -np.inf)[..., None]
    lengths = tf.reduce_sum(tf.cast(kept, tf.int32), axis=2)
    order = tf.argsort(tf.cast(~kept, tf.int32), axis=2, stable=True)
    if not backend.under_xla():
        order = order[..., : tf.maximum(tf.reduce_max(lengths), 1)]
    ranks = tf.argsort(totals, axis=1, direction="DESCENDING", stable=True)

    def in_order(x: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.gather(x, order, batch_dims=2), ranks, batch_dims=1)

    kept, ids, starts = in_order(kept), in_order(ids), in_order(by_word(starts))
    letters = tf.range(parts.length)
    places = letters - starts[..., None]  # (B, N, T, S)
    is_tag = letters < front
    there = is_tag | (places >= front)
    places = tf.where(is_tag, letters, places)
    width = tf.shape(weights)[4]
    weights = in_order(by_word(weights))
    weights = tf.gather(weights, tf.clip_by_value(places, 0, width - 1), batch_dims=3)
    there &= (places < width) & kept[..., None]
    windows_of = tf.reduce_sum(tf.cast(parts.needed, tf.float32), axis=1, keepdims=True)
    return SearchResult(
        tf.where(kept, ids, PAD_ID),
        tf.gather(lengths, ranks, batch_dims=1),
        tf.gather(totals, ranks, batch_dims=1) / windows_of,
        tf.where(there, weights, 0.0),
        tf.where(kept, in_order(by_word(by_window(result.log_probs))), 0.0),
    )


def _repeats(ids: tf.Tensor, kept: tf.Tensor) -> tf.Tensor:
    """Return whether the kept ids of a result are those of a result before it.

    `ids` and `kept` are `(…, N, T)`; the result is bool `(…, N)`.
    """
    order = tf.argsort(tf.cast(~kept, tf.int32), axis=-1, stable=True)
    axes = len(ids.shape) - 1
    ids = tf.gather(tf.where(kept, ids, PAD_ID), order, batch_dims=axes)
    same = tf.reduce_all(ids[..., :, None, :] == ids[..., None, :, :], axis=-1)  # (…, N, N)
    before = tf.range(tf.shape(ids)[-2])
    return tf.reduce_any(same & (before[:, None] > before), axis=-1)


def _best_sums(scores: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the N best sums of one score of each window.

    Args:
        scores: float32 `(B, K, N)`.

    Returns:
        For each window the rank of its score in each sum, int32 `(B, K, N)`, and the sums `(B, N)`,
        the greatest first. Of equal sums, the one with the better scores of early windows is first.
    """
    batch, count, results = tf.unstack(tf.shape(scores))
    ranks = tf.zeros([batch, count, results], tf.int32)
    sums = tf.where(tf.range(results) == 0, tf.zeros([batch, results]), -np.inf)

    def add(window, ranks, sums):
        pairs = sums[:, :, None] + scores[:, window, None, :]  # (B, N, N)
        sums, places = tf.math.top_k(tf.reshape(pairs, [batch, results * results]), results)
        here = tf.range(count)[:, None] == window
        before = tf.gather(ranks, places // results, axis=2, batch_dims=1)  # (B, K, N)
        return window + 1, tf.where(here, (places % results)[:, None], before), sums

    shapes = tf.TensorShape([]), ranks.shape, tf.TensorShape([scores.shape[0], None])
    _, ranks, sums = tf.while_loop(
        lambda window, *_: window < count, add, (0, ranks, sums), shape_invariants=shapes
    )
    return ranks, sums
