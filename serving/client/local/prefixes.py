"""Rules of a search: what spells a prefix and goes on, how probable it is, the word after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from serving.client.local.spelling import Spelled, Spelling
from serving.client.local.tokenizers import END_ID


class Prefix:
    """The text that translations begin with; a rule of `beam_search`.

    A hypothesis carries its place: the characters of the prefix that it has said, and one more than
    all where the text has gone on.
    """

    def __init__(self, spelling: Spelling, spelled: Sequence[Spelled]) -> None:
        self._spelling, self._spelled = spelling, spelled
        self._sizes = np.array([each.size for each in spelled])

    def __call__(
        self, log_probs: np.ndarray, tokens: np.ndarray, carried: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """See `Rule`."""
        before = carried[:, 0]
        added = np.where(
            before == 0, self._spelling.first_sizes[tokens], self._spelling.sizes[tokens]
        )
        place = np.minimum(before + added, self._of_rows(self._sizes, tokens) + 1)
        return self._allow(log_probs, place), np.stack([place, carried[:, 1]], 1)

    def _allow(self, log_probs: np.ndarray, place: np.ndarray) -> np.ndarray:
        found = np.full_like(log_probs, -np.inf)
        for row, (at, spelled) in enumerate(zip(place, self._of_each(place), strict=True)):
            if at < spelled.size:
                may: Any = spelled.exact[at] + spelled.partial[at]
            elif at == spelled.size and spelled.whole:
                may = ~self._spelling.continues
            else:
                may = slice(None)
            found[row, may] = log_probs[row, may]
        return found

    def _of_each(self, rows: np.ndarray) -> list[Spelled]:
        """Return the prefix of each hypothesis."""
        return [self._spelled[x] for x in self._of_rows(np.arange(len(self._spelled)), rows)]

    def _of_rows(self, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return what there is of sentences for each hypothesis of them."""
        return np.repeat(x, len(rows) // len(x))


class Covered(Prefix):
    """How probable prefixes are: a result ends with the token in which the prefix does.

    The tokens that go on after the prefix are one end: the score is the sum over them.
    """

    def _allow(self, log_probs: np.ndarray, place: np.ndarray) -> np.ndarray:
        found = np.full_like(log_probs, -np.inf)
        for row, (at, spelled) in enumerate(zip(place, self._of_each(place), strict=True)):
            if at < spelled.size:
                found[row, spelled.exact[at]] = log_probs[row, spelled.exact[at]]
                found[row, END_ID] = log_sum(log_probs[row, spelled.partial[at]])
            else:
                found[row, END_ID] = 0
        return found


class NextWord(Prefix):
    """The words that follow prefixes: a result ends where the next word does.

    All that may come after a word is one end. A prefix that ends in a word is followed by what
    completes it. A hypothesis also carries whether its word has begun.
    """

    def __init__(
        self, spelling: Spelling, spelled: Sequence[Spelled], inside: Sequence[bool]
    ) -> None:
        super().__init__(spelling, spelled)
        self._inside = np.array(inside)
        self._blank = np.array([not text.strip(" ") for text in spelling.texts])

    def __call__(
        self, log_probs: np.ndarray, tokens: np.ndarray, carried: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """See `Rule`."""
        log_probs, carried = super().__call__(log_probs, tokens, carried)
        place, size = carried[:, 0], self._of_rows(self._sizes, tokens)
        after = (place > size) & ~self._blank[tokens]
        inside = self._of_rows(self._inside, tokens) & (place >= size)
        begun = carried[:, 1].astype(bool) | after | inside
        continues, shown = self._spelling.continues, self._spelling.sizes > 0
        may = np.where(begun[:, None], continues, shown)
        found = np.where(may, log_probs, np.float32(-np.inf))
        over = log_sum(np.where(continues, np.float32(-np.inf), log_probs))
        found[:, END_ID] = np.where(begun, over, -np.inf)
        return found, np.stack([place, begun], 1)


def log_sum(log_probs: np.ndarray) -> np.ndarray:
    """Return the logarithm of the sum of probabilities along the last axis; -inf of none."""
    top = log_probs.max(-1, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0)
    with np.errstate(divide="ignore"):
        found: np.ndarray = top + np.log(np.exp(log_probs - top[..., None]).sum(-1))
    return found
