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

    A hypothesis carries its place in the prefix. Until it has said all, it may say what spells a
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
            (state, before, size), (memory, spelled) = state, memory
            log_probs, weights, state = step(tokens, state, memory)
            place = advance(self.spelling, size, tokens, before)
            log_probs = self.allow(log_probs, place, size, spelled)
            return log_probs, weights, (state, place, size)

        size = self.spelled.size
        return forced_step, (state, tf.zeros_like(size), size), (memory, self.spelled)

    def allow(
        self, log_probs: tf.Tensor, place: tf.Tensor, size: tf.Tensor, spelled: Spelled
    ) -> tf.Tensor:
        """Return log-probabilities `(rows, V)`, -inf of what a hypothesis may not say.

        Args:
            log_probs: of the vocabulary.
            place: of each hypothesis in its prefix, `(rows,)`.
            size: of its prefix, `(rows,)`.
            spelled: the prefixes.
        """
        bound = place < size

        def allowed() -> tf.Tensor:
            exact, partial = ways(self.spelling, spelled, place)
            return tf.where(~bound[:, None] | exact | partial, log_probs, NEVER)

        return tf.cond(tf.reduce_any(bound), allowed, lambda: log_probs)


class WholeWords(Prefix):
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
            _, place, size = state
            over = (place == size) & of_rows(whole, place)
            grows = over[:, None] & self.spelling.continues
            return tf.where(grows, NEVER, log_probs), weights, state

        return whole_step, state, (memory, self._whole)


class Covered(Prefix):
    """How probable the prefixes are: a result ends with the token in which the prefix does.

    The tokens that go on after the prefix are one end: the score is the sum over them.
    """

    def allow(
        self, log_probs: tf.Tensor, place: tf.Tensor, size: tf.Tensor, spelled: Spelled
    ) -> tf.Tensor:
        """See `Prefix`."""
        exact, partial = ways(self.spelling, spelled, place)
        beyond = tf.reduce_logsumexp(tf.where(partial, log_probs, NEVER), 1, keepdims=True)
        said = (place >= size)[:, None]
        inside = tf.where(exact & ~said, log_probs, NEVER)
        return _with_end(inside, tf.where(said, 0.0, beyond))


class NextWord(Prefix):
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
            _, place, size = state
            after = (place > size) & ~tf.gather(blank, tokens)
            begun |= after | (of_rows(inside, place) & (place >= size))
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


def advance(spelling: Spelling, size: tf.Tensor, tokens: tf.Tensor, before: tf.Tensor) -> tf.Tensor:
    """Return the places of hypotheses `(rows,)` after tokens, in prefixes of `size` `(rows,)`.

    The place is the number of bytes of the prefix that have been said, and one more than all where
    the text has gone on.
    """
    sizes = tf.gather(spelling.sizes, tokens)
    sizes = tf.where(before == 0, tf.gather(spelling.first_sizes, tokens), sizes)
    return tf.minimum(before + sizes, size + 1)


def ways(spelling: Spelling, spelled: Spelled, place: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return what may follow at places `(rows,)`, boolean `(rows, V)` each.

    Returns:
        The tokens that spell a part of the rest, and those that begin with all of it and go on.
    """
    rows, vocabulary = tf.shape(place)[0], spelling.sizes.shape[0]
    row = tf.range(rows)
    at = tf.stack(
        [_sentences(spelled.size, place), tf.minimum(place, tf.shape(spelled.tokens)[1] - 1)], 1
    )
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


def of_rows(x: tf.Tensor, place: tf.Tensor) -> tf.Tensor:
    """Return what there is of `B` sentences for each hypothesis of them, `(rows,)`."""
    return tf.gather(x, _sentences(x, place))


def _sentences(x: tf.Tensor, place: tf.Tensor) -> tf.Tensor:
    """Return which of the `B` sentences of x each hypothesis is of, `(rows,)`."""
    rows, count = tf.size(place), tf.size(x)
    return tf.range(rows) // tf.maximum(rows // tf.maximum(count, 1), 1)


def _with_end(log_probs: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
    """Return log-probabilities with those of the end `(rows, 1)`."""
    is_end = tf.range(tf.shape(log_probs)[1]) == END_ID
    return tf.where(is_end, end, log_probs)
