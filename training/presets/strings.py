"""Pairs of short strings are known by their looks: words and their phones, spellings, readings."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

FEWEST = 200  # pairs: of fewer, what is found may be chance
MOST_LETTERS = 40  # of a string
MOST_WORDS = 3
LARGEST_ALPHABET = 250
NEARLY_ALL = 0.95
_TOGETHER = 8192  # texts
_LETTERS = [
    "target_tokenizer=letters",
    "metric=characters",
    "attention=additive",  # phones follow the order of the letters; letters may not
    "label_smoothing=0.1",
]


class Strings(NamedTuple):
    """How pairs of short strings are learned."""

    preset: str
    settings: list[str]


def survey(pairs: Iterable[tuple[str, str]]) -> tuple[int, Strings | None]:
    """Count pairs, and return how they are learned if their sources are words, else None.

    Sources have few words and letters, of a small alphabet. Targets are symbols of a small
    alphabet between spaces, as phones are, or as short as sources.
    """
    sources, targets = _Side(), _Side()
    pairs = iter(pairs)
    while chunk := list(itertools.islice(pairs, _TOGETHER)):
        for side, texts in zip((sources, targets), zip(*chunk, strict=True), strict=True):
            side.add(texts)
    count = sources.count
    if count < FEWEST or not sources.are_short():
        return count, None
    preset = f"g2p-{'low' if count < 3_000 else 'medium' if count < 20_000 else 'high'}"
    if targets.are_symbols():
        return count, Strings(preset, [])
    if not targets.are_short():
        return count, None
    if preset == "g2p-low":
        return count, Strings("g2p-medium", [*_LETTERS, "epochs=150", "keep_by=score"])
    epochs = 40 if preset == "g2p-medium" else 30
    return count, Strings(preset, [*_LETTERS, f"epochs={epochs}"])


class _Side:
    """How the texts of one side look."""

    def __init__(self) -> None:
        self.count = self._short = self._words = 0
        self._letters: set[str] = set()
        self._symbols: set[str] = set()

    def add(self, texts: Sequence[str]) -> None:
        self.count += len(texts)
        self._short += sum(
            len(text) <= MOST_LETTERS and len(text.split()) <= MOST_WORDS for text in texts
        )
        self._letters.update(unicodedata.normalize("NFD", "".join(set().union(*texts))))
        if len(self._symbols) <= LARGEST_ALPHABET:
            each = [text.split() for text in texts]
            self._words += sum(map(len, each))
            self._symbols.update(*each)

    def are_short(self) -> bool:
        few = len(self._letters) <= LARGEST_ALPHABET
        return few and self._short >= NEARLY_ALL * self.count

    def are_symbols(self) -> bool:
        """Whether there are few symbols, and several in a text."""
        return len(self._symbols) <= LARGEST_ALPHABET and self._words >= 2 * self.count
