"""Which tokens spell the beginning of a text, cut in any way."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from training.data.ids import END_ID
from training.data.tokenizers import LETTERS, SPACES, Tokenizer

NONE = -1  # no token
# The characters that go on with a word; all others stand for themselves.
INSIDE = rf"(?:{LETTERS}|['’-])"
_SPACES_OF = {"sentencepiece": "[▁ ]+", "words": SPACES, "symbols": r"[ \t\n\v\f\r]+"}
# Of a kind, what a text's first token may have in front that is not shown.
_LEADS = {"sentencepiece": ("", " "), "words": ("", " "), "symbols": (" ",)}


class Spelled(NamedTuple):
    """The ways to spell `B` prefixes of at most P bytes; a place is a number of bytes.

    Attributes:
        size: int32 `(B,)`, bytes of each prefix.
        tokens: int32 `(B, P + 1, C)`, the tokens that may follow at each place, `NONE` for none.
        low: int32 `(B, P + 1, 2)`, with `high` the ranks of the tokens that begin with all that is
            left there, and go on.
        high: int32 `(B, P + 1, 2)`.
    """

    size: tf.Tensor
    tokens: tf.Tensor
    low: tf.Tensor
    high: tf.Tensor


class Spelling(tf.Module):
    """The texts of a vocabulary's tokens, in operations of a SavedModel.

    A prefix is read as its tokenizer reads texts: runs of spaces are one space, and none is in
    front (of `characters` and `letters`, every space counts). A space at the end says that the word
    is complete.

    Attributes:
        kind: the tokenizer's.
        surfaces: string `(V,)`, what each token adds to a text; "" of special ones.
        continues: boolean `(V,)`, whether the token goes on with the word before it.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(name="spelling")
        self.kind, self._leads = tokenizer.kind, _LEADS.get(tokenizer.kind, ("",))
        ids = np.arange(tokenizer.vocab_size, dtype="int32")
        strings = surfaces_of(self.kind, tokenizer.tokens(tf.constant(ids))).numpy()
        strings = np.where(ids > END_ID, strings, b"")
        self.surfaces = tf.constant(strings.tolist(), tf.string)
        self.continues = tf.strings.regex_full_match(self.surfaces, rf"(?s){INSIDE}.*")
        sizes = np.array([len(x) for x in strings.tolist()], "int32")
        self._longest = int(sizes.max(initial=1))
        hidden = np.array([x[:1] == b" " for x in strings.tolist()]) & (" " in self._leads)
        # Bytes that a token adds to a text, and that the first one does.
        self.sizes, self.first_sizes = tf.constant(sizes), tf.constant(sizes - hidden, tf.int32)
        self._index(strings.tolist())

    def _index(self, strings: list[bytes]) -> None:
        """Number all beginnings of tokens, and rank the tokens by their bytes."""
        order = sorted(range(len(strings)), key=lambda x: strings[x])
        rank = np.empty(len(strings), "int32")
        rank[order] = np.arange(len(strings))
        token: dict[bytes, int] = {}
        low: dict[bytes, int] = {}
        high: dict[bytes, int] = {}
        for place, number in enumerate(order):
            text = strings[number]
            token[text] = number
            for end in range(1, len(text) + 1):
                low.setdefault(text[:end], place)
                high[text[:end]] = place + 1
        keys = list(low)
        self.ranks = tf.constant(rank)
        self._nodes = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant(keys, tf.string), tf.range(len(keys), dtype=tf.int32)
            ),
            default_value=len(keys),
        )
        self._tokens = tf.constant([*(token.get(x, NONE) for x in keys), NONE], tf.int32)
        # A token that is the beginning itself has the first rank of those that begin so.
        self._low = tf.constant([*(low[x] + (x in token) for x in keys), 0], tf.int32)
        self._high = tf.constant([*high.values(), 0], tf.int32)

    def normalize(self, prefix: tf.Tensor) -> tf.Tensor:
        """Return prefixes `(B,)` as tokens spell them."""
        if self.kind not in _LEADS:
            return self.decompose(prefix)
        prefix = tf.strings.regex_replace(prefix, _SPACES_OF[self.kind], " ")
        return tf.strings.regex_replace(prefix, "^ ", "")

    def decompose(self, text: tf.Tensor) -> tf.Tensor:
        """Return texts as tokens spell them: `letters` are those of the decomposition."""
        return tf_text.normalize_utf8(text, "NFD") if self.kind == "letters" else text

    def spell(self, prefix: tf.Tensor, whole: tf.Tensor) -> tuple[Spelled, tf.Tensor]:
        """Return the ways to spell prefixes, and whether there is one.

        Args:
            prefix: string `(B,)`, from `normalize`.
            whole: boolean `(B,)`, whether the last word is complete: it does not go on, and no
                token begins in it and ends after it.

        Returns:
            The ways, without those that lead nowhere, and boolean `(B,)`.
        """
        size, longest = tf.strings.length(prefix), self._longest
        places = tf.reduce_max(tf.concat([size, [0]], 0)) + 1  # P + 1, of no row at all, too
        starts, lengths = tf.range(places), tf.range(1, longest + 1)
        ends = starts[:, None] + lengths  # (P + 1, L)
        nodes = self._look_up(self._padded(prefix, places), ends - lengths, ends)
        left = size[:, None] - starts  # (B, P + 1)
        exact = tf.gather(self._tokens, nodes)
        exact = tf.where(lengths <= left[:, :, None], exact, NONE)
        partial = self._partial(nodes, left)
        first, of_first = self._with_space(prefix, size, places)
        if " " in self._leads:
            # Only what is first has a space in front that is not shown.
            rest = [[0, 0], [0, places - 1], [0, 0]]
            pad = tf.pad(first + 1, rest) - 1
            if "" not in self._leads:
                inside = (starts > 0)[:, None]
                exact = tf.where(inside, exact, NONE)
                partial = tf.where(inside, partial, 0)
            exact = tf.concat([exact, pad], 2)
            partial = tf.concat([partial, tf.pad(of_first, rest)], 2)
            lengths = tf.concat([lengths, tf.range(longest)], 0)
        partial = tf.where(whole[:, None, None], 0, partial)
        low, high = partial[:, :, ::2], partial[:, :, 1::2]
        may_end = tf.strings.regex_full_match(prefix, "(?s).* ")[:, None] & (left == 1)
        reached = may_end | tf.reduce_any(high > low, 2) | (left <= 0)
        exact, reached = _leading_on(exact, lengths, starts, reached)
        tokens = tf.concat([exact, tf.where(may_end, END_ID, NONE)[:, :, None]], 2)
        return Spelled(size, tokens, low, high), reached[:, 0]

    def _look_up(self, text: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
        """Return the numbers of texts' parts, `(B, P + 1, L)`."""
        shape = tf.shape(ends)
        sizes = tf.reshape(ends - starts, [1, -1])
        parts = tf.strings.substr(text[:, None], tf.reshape(starts, [1, -1]), sizes)
        return self._nodes.lookup(tf.reshape(parts, [-1, shape[0], shape[1]]))

    def _padded(self, prefix: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
        """Return texts of which there is a part at every place."""
        more = tf.strings.reduce_join(tf.fill([places + self._longest], "\0"))
        return prefix + more

    def _partial(self, nodes: tf.Tensor, left: tf.Tensor) -> tf.Tensor:
        """Return low and high of the tokens that begin with all that is left, `(B, P + 1, 2)`."""
        inside = (left > 0) & (left <= self._longest)
        at = tf.where(inside, left - 1, 0)
        node = tf.gather(nodes, at, batch_dims=2)
        found = tf.stack([tf.gather(self._low, node), tf.gather(self._high, node)], 2)
        return tf.where(inside[:, :, None], found, 0)

    def _with_space(
        self, prefix: tf.Tensor, size: tf.Tensor, places: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the tokens `(B, 1, L)` and the partial ones of a space and the prefix."""
        lengths = tf.range(self._longest)  # of the prefix
        text = " " + self._padded(prefix, places)
        nodes = self._look_up(text, tf.zeros_like(lengths)[None], lengths[None] + 1)
        exact = tf.gather(self._tokens, nodes)
        exact = tf.where(lengths <= size[:, None, None], exact, NONE)
        partial = self._partial(nodes, size[:, None] + 1)
        # Before a prefix of no character, all is free.
        return exact, tf.where(size[:, None, None] > 0, partial, 0)


def surfaces_of(kind: str, tokens: tf.Tensor) -> tf.Tensor:
    """Return what tokens of a kind of tokenizer add to a text, but for the first one's space."""
    if kind == "symbols":
        return tf.where(tokens == "", "", " " + tokens)
    return tf.strings.regex_replace(tokens, "▁", " ") if kind in _LEADS else tokens


def inside_characters(tokenizer: Tokenizer) -> str:
    """Return the characters of a vocabulary that go on with a word, for programs that lack them."""
    tokens = tokenizer.tokens(tf.range(tokenizer.vocab_size)).numpy()
    found = sorted(set("".join(token.decode("utf-8", "replace") for token in tokens)))
    matches = tf.strings.regex_full_match(tf.constant(found, tf.string), INSIDE).numpy()
    return "".join(x for x, inside in zip(found, matches, strict=True) if inside)


def _leading_on(
    exact: tf.Tensor, lengths: tf.Tensor, starts: tf.Tensor, reached: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the tokens after which the rest can be spelled, and from where it can be.

    Args:
        exact: `(B, P + 1, C)`, tokens.
        lengths: `(C,)`, how many bytes further they lead.
        starts: `(P + 1,)`.
        reached: boolean `(B, P + 1)`, where nothing is left, or a last token begins.
    """
    ends = tf.minimum(starts[:, None] + lengths, tf.shape(starts)[0] - 1)

    def further(reached: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        ways = (exact != NONE) & tf.gather(reached, ends, axis=1)
        more = reached | tf.reduce_any(ways, 2)
        return more, tf.reduce_any(more != reached)

    reached, _ = tf.while_loop(lambda _, changed: changed, further, (reached, tf.constant(True)))
    return tf.where(tf.gather(reached, ends, axis=1), exact, NONE), reached


def begun_word(prefix: tf.Tensor) -> tf.Tensor:
    """Return the bytes before the word that prefixes `(B,)` end in, int32; all of them if none."""
    return tf.strings.length(tf.strings.regex_replace(prefix, rf"{INSIDE}+$", ""))
