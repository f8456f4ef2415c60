"""Translations that begin as they are told to, and the words that may come next."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from keras_attention import SearchResult
from training.data.ids import END_ID, PAD_ID
from training.data.spelling import INSIDE, Spelled, Spelling, begun_word
from training.data.tokenizers import Tokenizer, composed, valid_text
from training.decode.asked import Search
from training.decode.prefix import Covered, NextWord, Prefix, WholeWords
from training.decode.search import Encoded

MORE = 2  # words searched for each one wanted: several cuts of one word are one
SHOWN = 80  # characters of a prefix that is refused
MOST = 2**20  # bytes of prefixes, each counted as the longest: each byte takes 450 of memory


class Completing:
    """The signatures `complete` and `alternatives`.

    Args:
        tokenizer: of the target.
        spelling: of its tokens.
        asked: how translations are searched; `num_results` words are found.
        read: from texts `(B,)` to ids `(B, S)`, whether each is empty, and whether it was cut.
        encode: from ids to what a search takes.
        search: from that, the settings of a search and a prefix to what is found.
        copied: from texts, and how many results each has, to the tokens that unknown ones are
            replaced by, `(B · results, S)`; or None.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        spelling: Spelling,
        asked: Search,
        read: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor, tf.Tensor]],
        encode: Callable[[tf.Tensor], Encoded],
        search: Callable[..., SearchResult],
        copied: Callable[..., tf.Tensor | None] = lambda text, results=1: None,
    ) -> None:
        self._tokenizer, self._spelling, self._asked = tokenizer, spelling, asked
        self._read, self._encode, self._search, self._copied = read, encode, search, copied

    def complete(
        self, text: tf.Tensor, prefix: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], SearchResult, tf.Tensor]:
        """Translate texts `(B,)` so that each translation begins with its prefix `(B,)`.

        A prefix may end within a word; a space at its end says that the word is complete. The
        answer has it as it was typed, whatever spaces it has.

        Returns:
            `translation`, `score` and `truncated` `(B,)`, what was found, and which texts are
            empty.
        """
        ids, empty, truncated = self._read(text)
        prefix, normal = self._typed(text, prefix)
        spelled = self._spelled(normal)
        found = self._search(self._encode(ids), prefix=Prefix(self._spelling, spelled))
        said = self._said(found.ids[:, 0], self._copied(text))
        rest = _after(said, spelled.size)
        outputs = {
            "translation": self._shown(prefix + tf.where(empty, "", rest)),
            "score": tf.where(empty, 0.0, found.scores[:, 0]),
            "truncated": truncated,
        }
        return outputs, found, empty

    def alternatives(self, text: tf.Tensor, prefix: tf.Tensor) -> dict[str, tf.Tensor]:
        """Say which words are the most probable after prefixes `(B,)` of translations.

        A prefix that ends in a word is followed by all of the words that begin so.

        Returns:
            `words` `(B, K)`, padded with "", the most probable first; `probabilities` `(B, K)`, of
            each after what is before it; `translations` `(B, K)`, the best that begin so, and their
            `scores` `(B, K)`.
        """
        ids, empty, _ = self._read(text)
        typed, normal = self._typed(text, prefix)
        start = begun_word(normal)  # of the word that is asked for
        encoded = self._encode(ids)
        raw, probabilities = self._next(encoded, normal, start)
        probabilities = tf.where(empty[:, None], 0.0, probabilities)
        known = probabilities > 0
        count, before = self._asked.num_results, tf.strings.substr(normal, 0 * start, start)
        # Each word is a row; one that is not there has the prefix alone.
        begun = tf.reshape(tf.where(known, before[:, None] + raw, before[:, None]), [-1])
        whole = tf.reshape(known, [-1])
        forced = WholeWords(self._spelling, self._spelled(begun, whole), whole)
        found = self._search(encoded.repeated(count), prefix=forced)
        said = self._said(found.ids[:, 0], self._copied(text, count))
        rest = _after(said, tf.repeat(start, count))
        left = tf.strings.length(typed) - tf.strings.length(normal) + start
        head = tf.strings.substr(typed, 0 * start, tf.maximum(left, 0))
        rows, translations = [-1, count], head[:, None] + tf.reshape(rest, [-1, count])
        return {
            "words": tf.where(known, self._shown(tf.strings.strip(raw)), ""),
            "probabilities": probabilities,
            "translations": tf.where(known, self._shown(translations), ""),
            "scores": tf.where(known, tf.reshape(found.scores[:, 0], rows), 0.0),
        }

    def _next(
        self, encoded: Encoded, normal: tf.Tensor, start: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the next words `(B, K)` with what is in front of them, and their probabilities."""
        count = MORE * self._asked.num_results
        asked = dataclasses.replace(
            self._asked, length_penalty=0.0, coverage_penalty=0.0, replaces_unknown=False
        )
        whole = dataclasses.replace(asked, num_results=asked.beam_width)
        spelled = self._spelled(normal)
        covered = self._search(encoded, whole, prefix=Covered(self._spelling, spelled))
        inside = tf.strings.regex_full_match(normal, rf"(?s).*{INSIDE}")
        forced = NextWord(self._spelling, spelled, inside)
        wide = dataclasses.replace(
            asked, num_results=count, beam_width=max(count, asked.beam_width)
        )
        found = self._search(encoded, wide, prefix=forced)
        said = self._said(tf.reshape(found.ids, [-1, tf.shape(found.ids)[2]]))
        raw = tf.reshape(_after(said, tf.repeat(start, count)), [-1, count])
        # Not ended, a word was cut where the search ended.
        ended = tf.reduce_any(found.ids == END_ID, 2)
        total = tf.reduce_logsumexp(covered.scores, 1, keepdims=True)
        each = tf.where(ended & (raw != ""), tf.exp(found.scores - total), 0.0)
        same = raw[:, :, None] == raw[:, None, :]
        first = tf.argmax(same, 2, output_type=tf.int32) == tf.range(count)
        each = tf.where(first, tf.reduce_sum(tf.where(same, each[:, None, :], 0.0), 2), 0.0)
        best, places = tf.math.top_k(tf.minimum(each, 1.0), self._asked.num_results)
        return tf.gather(raw, places, batch_dims=1), best

    def _said(self, ids: tf.Tensor, copied: tf.Tensor | None = None) -> tf.Tensor:
        """Return the texts of ids as prefixes are spelled."""
        return self._spelling.decompose(self._tokenizer.detokenize(ids, copied))

    def _shown(self, text: tf.Tensor) -> tf.Tensor:
        return composed(self._spelling.kind, text)

    def _typed(self, text: tf.Tensor, prefix: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return prefixes as valid UTF-8, and as tokens spell them."""
        prefix = tf.ensure_shape(prefix, [None])
        same = tf.debugging.assert_equal(
            tf.shape(text), tf.shape(prefix), "as many prefixes as texts are expected"
        )
        longest = tf.reduce_max(tf.concat([[0], tf.strings.length(prefix)], 0))
        size = tf.size(prefix, tf.int64) * tf.cast(longest, tf.int64)
        fits = tf.debugging.assert_less_equal(
            size, tf.constant(MOST, tf.int64), f"prefixes, each as the longest: above {MOST} bytes"
        )
        with tf.control_dependencies([same, fits]):
            prefix = valid_text(prefix)
        normal = self._spelling.normalize(prefix)
        return normal if self._spelling.kind == "letters" else prefix, normal

    def _spelled(self, normal: tf.Tensor, whole: tf.Tensor | None = None) -> Spelled:
        """Return the ways to spell prefixes: see `Spelling.spell`.

        Raises:
            InvalidArgumentError: as the graph runs, for a prefix that no tokens spell.
        """
        whole = tf.zeros_like(normal, tf.bool) if whole is None else whole
        spelled, possible = self._spelling.spell(normal, whole)
        row = tf.argmin(tf.concat([possible, [False]], 0), output_type=tf.int32)
        wrong = tf.concat([normal, [""]], 0)[row]
        what = "] has characters that the model has no tokens for: "
        shown = tf.strings.substr(wrong, 0, SHOWN, unit="UTF8_CHAR")
        said = tf.strings.join(["prefix[", tf.strings.as_string(row), what, shown])
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(possible), [said])]):
            return tf.nest.map_structure(tf.identity, spelled)


def outcome(
    found: SearchResult, tokenizer: Tokenizer, empty: tf.Tensor, copied: tf.Tensor | None
) -> dict[str, tf.Tensor]:
    """Return `tokens` `(B, T)` and `token_scores` `(B, T)`, the log-probability of each."""
    ids = found.ids[:, 0]
    said = (ids != PAD_ID) & ~empty[:, None]
    tokens = tf.where(ids == END_ID, "</s>", tokenizer.tokens(ids, copied))
    return {
        "tokens": tf.where(said, tokens, ""),
        "token_scores": tf.where(said, found.log_probs[:, 0], 0.0),
    }


def _after(text: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Return what is behind the first bytes of texts; nothing of one that is no longer."""
    start = tf.minimum(size, tf.strings.length(text))
    return tf.strings.substr(text, start, tf.strings.length(text) - start)
