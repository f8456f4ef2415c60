"""Which tokens spell the beginning of a text, cut in any way; without TensorFlow."""

from __future__ import annotations

import bisect
import re
import unicodedata
from collections.abc import Sequence

import numpy as np

from serving.client.local.tokenizers import END_ID, Tokenizer

_SPACES = {
    "sentencepiece": "[▁ ]+",
    "words": r"[▁\s\x00-\x1f\x7f-\x9f]+",
    "symbols": r"[ \t\n\v\f\r]+",
}


class Spelling:
    """The texts of a vocabulary's tokens.

    Args:
        tokenizer: of the target.
        size: of its vocabulary.
    """

    def __init__(self, tokenizer: Tokenizer, size: int) -> None:
        self._kind = tokenizer.kind
        special = END_ID + 1
        self.texts = [""] * special + [self._text(tokenizer.token(x)) for x in range(special, size)]
        # What a text begins with has no space in front.
        spaced = self._kind in _SPACES
        self.first = [x.removeprefix(" ") if spaced else x for x in self.texts]
        self._inner, self._leading = _Sorted(self.texts), _Sorted(self.first)

    def _text(self, token: str) -> str:
        if self._kind == "symbols":
            return f" {token}"
        return token.replace("▁", " ") if self._kind in _SPACES else token

    def normalize(self, prefix: str) -> str:
        """Return a prefix as tokens spell it: runs of spaces are one, and none is in front."""
        if self._kind not in _SPACES:
            return self.decompose(prefix)
        return re.sub(_SPACES[self._kind], " ", prefix).removeprefix(" ")

    def decompose(self, text: str) -> str:
        """Return a text as tokens spell it: `letters` are those of the decomposition."""
        return unicodedata.normalize("NFD", text) if self._kind == "letters" else text

    def compose(self, text: str) -> str:
        """Return what was spelled as a text."""
        return unicodedata.normalize("NFC", text) if self._kind == "letters" else text

    def ways(self, prefix: str) -> list[np.ndarray] | None:
        """Return the tokens that may follow at each place in a prefix; None if none spell it."""
        found = [np.zeros(0, int)] * len(prefix)
        open_ = {len(prefix)}  # places from which the rest can be spelled
        longest = max(map(len, self.texts), default=0)
        for place in reversed(range(len(prefix))):
            names = self._inner if place else self._leading
            exact = [
                x
                for end in range(place + 1, min(place + longest, len(prefix)) + 1)
                if end in open_
                for x in names.equal(prefix[place:end])
            ]
            tokens = [*exact, *names.longer(prefix[place:])]
            if prefix[place:] == " ":
                tokens.append(END_ID)  # the word is complete, and may be the last
            if tokens:
                open_.add(place)
            if not place and tokens:  # a space that is not shown
                tokens += [x for x, text in enumerate(self.texts) if text and not self.first[x]]
            found[place] = np.array(tokens, int)
        return found if 0 in open_ else None


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
