"""Which tokens spell the beginning of a text, cut in any way; without TensorFlow."""

from __future__ import annotations

import bisect
import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from serving.client.local.tokenizers import END_ID, Tokenizer

_SPACES = {
    "sentencepiece": "[▁ ]+",
    "words": r"[▁\s\x00-\x1f\x7f-\x9f]+",
    "symbols": r"[ \t\n\v\f\r]+",
}
# Letters that are words of their own: those of the scripts Han, Hiragana and Katakana. The mark
# that prolongs a sound, and those of voiced ones in half width, are of several scripts.
_IDEOGRAPHS = ("CJK", "HIRAGANA", "KATAKANA ", "HALFWIDTH KATAKANA LETTER", "HENTAIGANA")
_ITERATION = ("IDEOGRAPHIC ITERATION", "VERTICAL IDEOGRAPHIC ITERATION", "OLD CHINESE")


class Spelled(NamedTuple):
    """The ways to spell a prefix.

    Attributes:
        size: its characters.
        exact: at each of them the tokens that spell a part of the rest, and END where that is left
            out.
        partial: the tokens that begin with all of the rest and go on.
        whole: whether the last word is complete.
    """

    size: int
    exact: list[list[int]]
    partial: list[list[int]]
    whole: bool


class Spelling:
    """The texts of a vocabulary's tokens.

    Args:
        tokenizer: of the target.
        inside: the characters that go on with a word, of those that its tokens have.

    Attributes:
        kind: the tokenizer's.
        texts: what each token adds to a text; "" of special ones.
        sizes: int `(V,)`, the characters of each.
        first_sizes: int `(V,)`, of those of a text's first token that are shown.
        continues: boolean `(V,)`, whether the token goes on with the word before it.
    """

    def __init__(self, tokenizer: Tokenizer, inside: str) -> None:
        self.kind, self._inside = tokenizer.kind, frozenset(inside)
        special = END_ID + 1
        tokens = [tokenizer.token(number) for number in range(special, tokenizer.size)]
        self.texts = [""] * special + [surface(self.kind, token) for token in tokens]
        # The first token of a text has no space in front.
        first = [x.removeprefix(" ") if self.kind in _SPACES else x for x in self.texts]
        self.sizes, self.first_sizes = (np.array([*map(len, x)]) for x in (self.texts, first))
        self.continues = np.array([text[:1] in self._inside for text in self.texts])
        self._hidden = [x for x, text in enumerate(self.texts) if text and not first[x]]
        self._inner, self._leading = _Sorted(self.texts), _Sorted(first)

    def normalize(self, prefix: str) -> str:
        """Return a prefix as tokens spell it: runs of spaces are one, and none is in front."""
        if self.kind not in _SPACES:
            return self.decompose(prefix)
        return re.sub(_SPACES[self.kind], " ", prefix).removeprefix(" ")

    def decompose(self, text: str) -> str:
        """Return a text as tokens spell it: `letters` are those of the decomposition."""
        return unicodedata.normalize("NFD", text) if self.kind == "letters" else text

    def goes_on(self, text: str) -> bool:
        """Return whether a text that no vocabulary has goes on with the word before it."""
        first = text[:1] or " "
        kind = unicodedata.category(first)[0]
        if kind == "L" and unicodedata.name(first, "").startswith(_IDEOGRAPHS + _ITERATION):
            return False
        return first in "'’-" or kind in "LMN"

    def begun_word(self, prefix: str) -> int:
        """Return the characters before the word that a prefix ends in; all of them if none."""
        start = len(prefix)
        while start and prefix[start - 1] in self._inside:
            start -= 1
        return start

    def spell(self, prefix: str, whole: bool = False) -> Spelled | None:
        """Return the ways to spell a prefix, without those that lead nowhere.

        Args:
            prefix: from `normalize`.
            whole: whether the last word is complete: it does not go on, and no token begins in it
                and ends after it.

        Returns:
            The ways; None if there is none.
        """
        exact: list[list[int]] = [[] for _ in prefix]
        partial: list[list[int]] = [[] for _ in prefix]
        open_ = {len(prefix)}  # places from which the rest can be spelled
        longest = int(self.sizes.max(initial=0))
        for place in reversed(range(len(prefix))):
            names = self._inner if place else self._leading
            rest = prefix[place : place + longest + 1]  # more of it no token spells
            exact[place] = [
                x
                for size in range(1, min(longest, len(rest)) + 1)
                if place + size in open_
                for x in names.equal(rest[:size])
            ]
            if not whole and len(rest) < longest:
                partial[place] = names.longer(rest)
            if rest == " ":
                exact[place].append(END_ID)  # the word is complete, and may be the last
            if exact[place] or partial[place]:
                open_.add(place)
        if 0 not in open_:
            return None
        if prefix:
            exact[0] += self._hidden
        return Spelled(len(prefix), exact, partial, whole)


def surface(kind: str, token: str) -> str:
    """Return what a token of a kind of tokenizer adds to a text, but for the first one's space."""
    if kind == "symbols":
        return f" {token}"
    return token.replace("▁", " ") if kind in _SPACES else token


def composed(kind: str, text: str) -> str:
    """Return joined tokens of a kind as a text: `letters` make characters."""
    return unicodedata.normalize("NFC", text) if kind == "letters" else text


class _Sorted:
    """Texts by what they begin with."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._order = sorted(range(len(texts)), key=texts.__getitem__)
        self._texts = [texts[x] for x in self._order]

    def equal(self, text: str) -> list[int]:
        """Return those that are a text."""
        low = bisect.bisect_left(self._texts, text)
        return self._order[low : bisect.bisect_right(self._texts, text)]

    def longer(self, text: str) -> list[int]:
        """Return those that begin with a text and go on."""
        low = bisect.bisect_right(self._texts, text)
        return self._order[low : bisect.bisect_right(self._texts, f"{text}\U0010ffff")]
