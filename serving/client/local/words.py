"""The words of a translation, and how sure the model is of each."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np

from serving.client.local.tokenizers import END_ID, Tokenizer

# Letters that are words of their own: those of the scripts Han, Hiragana and Katakana. The mark
# that prolongs a sound, and those of voiced ones in half width, are of several scripts.
_IDEOGRAPHS = ("CJK", "HIRAGANA", "KATAKANA ", "HALFWIDTH KATAKANA LETTER", "HENTAIGANA")
_ITERATION = ("IDEOGRAPHIC ITERATION", "VERTICAL IDEOGRAPHIC ITERATION", "OLD CHINESE")


class Words:
    """Joins a vocabulary's tokens to words.

    Args:
        tokenizer: of the target.
        inside: the characters that go on with a word, of those that its tokens have.
    """

    def __init__(self, tokenizer: Tokenizer, inside: str) -> None:
        self._kind = tokenizer.kind
        special = END_ID + 1
        tokens = [tokenizer.token(number) for number in range(special, tokenizer.size)]
        self._texts = [""] * special + [_surface(self._kind, token) for token in tokens]
        self._continues = [text[:1] in {*inside} for text in self._texts]

    def __call__(
        self,
        ids: Iterable[int],
        log_probs: Iterable[float],
        copied: Sequence[str] | None = None,
    ) -> tuple[tuple[str, ...], tuple[float, ...]]:
        """Return the words of a text, and the probability of the least probable token of each.

        A word is a run of letters and digits; every other character is a word of its own. Each has
        the space in front of it: joined, they are the text.

        Args:
            ids: of the text's tokens.
            log_probs: of each token.
            copied: the tokens that ids beyond the vocabulary stand for.
        """
        size = len(self._texts)
        words: list[str] = []
        least: list[float] = []
        for number, log_prob in zip(ids, log_probs, strict=True):
            if number <= END_ID:
                continue
            if copied is None or number < size:
                text, continues = self._texts[number], self._continues[number]
            else:
                text = _surface(self._kind, copied[number - size])
                continues = goes_on(text)
            if not words or not continues:
                words.append("")
                least.append(0.0)
            words[-1] += text
            least[-1] = min(least[-1], float(log_prob))
        if self._kind == "letters":
            words = [unicodedata.normalize("NFC", word) for word in words]
        elif words and self._kind != "characters":  # a text's first space is not shown
            words[0] = words[0].removeprefix(" ")
        return tuple(words), tuple(np.exp(np.array(least, "float32")).tolist())


def goes_on(text: str) -> bool:
    """Return whether a text that no vocabulary has goes on with the word before it."""
    first = text[:1] or " "
    category = unicodedata.category(first)[0]
    if category == "L" and unicodedata.name(first, "").startswith(_IDEOGRAPHS + _ITERATION):
        return False
    return first in "'’-" or category in "LMN"


def _surface(kind: str, token: str) -> str:
    """Return what a token of a kind of tokenizer adds to a text, but for the first one's space."""
    if kind == "symbols":
        return f" {token}"
    return token.replace("▁", " ") if kind in ("sentencepiece", "words") else token
