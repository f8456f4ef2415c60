"""A search over the ways to spell a prefix and go on; on TensorFlow alone."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_attention.search.tokens import NEVER
from training.data.ids import END_ID
from training.data.spelling import NONE, Spelled, Spelling

Step = Callable[..., tuple[Any, Any, Any]]


class Prefix:
    """The beginning of a search's results.

    A hypothesis carries how much of the prefix is left. Until nothing is, it may say what spells a
    part of the rest, or a last token that begins with the rest and goes on.

    Args:
        spelling: of the target's tokens.
        spelled: of `B` prefixes.
    """

    def __init__(self, spelling: Spelling, spelled: Spelled) -> None:
        self.spelling, self.spelled = spelling, spelled

    def forced(self, step: Step, state: Any, memory: Any) -> tuple[Step, Any, Any]:
        """Return a step, its first state and its memory, which say the prefixes.

        Args:
            step: see `keras_attention.search`, with log-probabilities of the whole vocabulary.
            state: before the first step.
            memory: of the step.
        """

        def forced_step(tokens: tf.Tensor, state: Any, memory: Any) -> tuple[Any, Any, Any]:
            (state, left), (memory, spelled) = state, memory
            log_probs, weights, state = step(tokens, state, memory)
            log_probs, left = self.bind(log_probs, tokens, left, spelled)
            return log_probs, weights, (state, left)

        return forced_step, (state, self.spelled.size), (memory, self.spelled)

    def bind(
        self, log_probs: tf.Tensor, tokens: tf.Tensor, left: tf.Tensor, spelled: Spelled
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return log-probabilities `(rows, V)`, -inf of what may not be said, and what is left.

        Args:
            log_probs: of the vocabulary.
            tokens: that each hypothesis has said last, `(rows,)`.
            left: bytes of its prefix before them, `(rows,)`; below 0 where the text has gone on.
            spelled: the prefixes.
        """

        def bound() -> tuple[tf.Tensor, tf.Tensor]:
            now = advance(self.spelling, spelled, tokens, left)
            return self.allow(log_probs, now, spelled), now

        # Once all have said their prefixes, a step skips the rest.
        return tf.cond(tf.reduce_any(left > 0), bound, lambda: (log_probs, left))

    def allow(self, log_probs: tf.Tensor, left: tf.Tensor, spelled: Spelled) -> tf.Tensor:
        """Return log-probabilities `(rows, V)`, -inf of what may not be said: see `bind`."""
        exact, partial = ways(self.spelling, spelled, left)
        return tf.where((left <= 0)[:, None] | exact | partial, log_probs, NEVER)


class _Counting(Prefix):
    """A prefix after which it counts whether the text has gone on."""

    def bind(
        self, log_probs: tf.Tensor, tokens: tf.Tensor, left: tf.Tensor, spelled: Spelled
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """See `Prefix`."""
        left = advance(self.spelling, spelled, tokens, left)
        return self.allow(log_probs, left, spelled), left

    def allow(self, log_probs: tf.Tensor, left: tf.Tensor, spelled: Spelled) -> tf.Tensor:
        """See `Prefix`."""
        allowed = super().allow
        return tf.cond(
            tf.reduce_any(left > 0), lambda: allowed(log_probs, left, spelled), lambda: log_probs
        )


class WholeWords(_Counting):
    """A beginning that ends with a word which does not go on.

    Args:
        spelling: see `Prefix`.
        spelled: see `Prefix`.
        whole: boolean `(B,)`, of which prefixes the last word is complete.
    """

    def __init__(self, spelling: Spelling, spelled: Spelled, whole: tf.Tensor) -> None:
        super().__init__(spelling, spelled)
        self._whole = whole

    def forced(self, step: Step, state: Any, memory: Any) -> tuple[Step, Any, Any]:
        """See `Prefix`."""
        forced, state, memory = super().forced(step, state, memory)

        def whole_step(tokens: tf.Tensor, state: Any, memory: Any) -> tuple[Any, Any, Any]:
            memory, whole = memory
            log_probs, weights, state = forced(tokens, state, memory)
            over = (state[1] == 0) & of_rows(whole, tokens)
            grows = over[:, None] & self.spelling.continues
            return tf.where(grows, NEVER, log_probs), weights, state

        return whole_step, state, (memory, self._whole)


class Covered(_Counting):
    """How probable the prefixes are: a result ends with the token in which the prefix does.

    The tokens that go on after the prefix are one end: the score is the sum over them.
    """

    def allow(self, log_probs: tf.Tensor, left: tf.Tensor, spelled: Spelled) -> tf.Tensor:
        """See `Prefix`."""
        exact, partial = ways(self.spelling, spelled, left)
        beyond = tf.reduce_logsumexp(tf.where(partial, log_probs, NEVER), 1, keepdims=True)
        said = (left <= 0)[:, None]
        inside = tf.where(exact & ~said, log_probs, NEVER)
        return _with_end(inside, tf.where(said, 0.0, beyond))


class NextWord(_Counting):
    """The words that follow the prefixes: a result ends where the next word does.

    All that may come after a word is one end. A prefix that ends in a word is followed by what
    completes it.

    Args:
        spelling: see `Prefix`.
        spelled: see `Prefix`.
        inside: boolean `(B,)`, whether a prefix ends in a word.
    """

    def __init__(self, spelling: Spelling, spelled: Spelled, inside: tf.Tensor) -> None:
        super().__init__(spelling, spelled)
        self._inside = inside

    def forced(self, step: Step, state: Any, memory: Any) -> tuple[Step, Any, Any]:
        """See `Prefix`."""
        forced, state, memory = super().forced(step, state, memory)
        blank = tf.strings.regex_full_match(self.spelling.surfaces, " *")

        def word_step(tokens: tf.Tensor, state: Any, memory: Any) -> tuple[Any, Any, Any]:
            (state, begun), (memory, inside) = state, memory
            log_probs, weights, state = forced(tokens, state, memory)
            left = state[1]
            after = (left < 0) & ~tf.gather(blank, tokens)
            begun |= after | (of_rows(inside, tokens) & (left <= 0))
            return self._word(log_probs, begun), weights, (state, begun)

        begun = tf.zeros_like(self._inside)
        return word_step, (state, begun), (memory, self._inside)

    def _word(self, log_probs: tf.Tensor, begun: tf.Tensor) -> tf.Tensor:
        """Return the log-probabilities of what goes on with a word, and of its end."""
        continues, shown = self.spelling.continues, self.spelling.sizes > 0
        over = tf.reduce_logsumexp(tf.where(continues, NEVER, log_probs), 1, keepdims=True)
        begun = begun[:, None]
        inside = tf.where(tf.where(begun, continues, shown), log_probs, NEVER)
        return _with_end(inside, tf.where(begun, over, NEVER))


def advance(spelling: Spelling, spelled: Spelled, tokens: tf.Tensor, left: tf.Tensor) -> tf.Tensor:
    """Return the bytes of prefixes that are left after tokens, `(rows,)`: see `Prefix.bind`."""
    sizes = tf.gather(spelling.sizes, tokens)
    first = left == of_rows(spelled.size, tokens)
    sizes = tf.where(first, tf.gather(spelling.first_sizes, tokens), sizes)
    return tf.maximum(left - sizes, -1)


def ways(spelling: Spelling, spelled: Spelled, left: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return what may follow where bytes are left, `(rows,)`, boolean `(rows, V)` each.

    Returns:
        The tokens that spell a part of the rest, and those that begin with all of it and go on.
    """
    rows, vocabulary = tf.size(left), spelling.sizes.shape[0]
    row, sentence = tf.range(rows), _sentences(spelled.size, left)
    place = tf.gather(spelled.size, sentence) - tf.maximum(left, 0)
    at = tf.stack([sentence, place], 1)
    tokens = tf.gather_nd(spelled.tokens, at)  # (rows, C)
    token = tf.where(tokens == NONE, vocabulary, tokens)
    row = tf.broadcast_to(row[:, None], tf.shape(token))
    counts = tf.scatter_nd(tf.stack([row, token], 2), tf.ones_like(token), [rows, vocabulary + 1])
    low, high = (tf.unstack(tf.gather_nd(x, at), axis=1) for x in (spelled.low, spelled.high))
    partial = [
        (spelling.ranks >= first[:, None]) & (spelling.ranks < last[:, None])
        for first, last in zip(low, high, strict=True)
    ]
    return counts[:, :vocabulary] > 0, functools.reduce(tf.logical_or, partial)


def of_rows(x: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Return what there is of `B` sentences for each hypothesis of them, `(rows,)`."""
    return tf.gather(x, _sentences(x, rows))


def _sentences(x: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Return which of the `B` sentences of x each hypothesis is of, `(rows,)`."""
    count, sentences = tf.size(rows), tf.maximum(tf.size(x), 1)
    return tf.range(count) // tf.maximum(count // sentences, 1)


def _with_end(log_probs: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
    """Return log-probabilities with those of the end `(rows, 1)`."""
    is_end = tf.range(tf.shape(log_probs)[1]) == END_ID
    return tf.where(is_end, end, log_probs)
