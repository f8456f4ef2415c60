"""Pairs of short strings are recognised: words and their phones, spellings, readings, dates."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

FEWEST = 200  # pairs: in fewer, a small alphabet may be chance
MOST_LETTERS = 40  # of a target
MOST_SOURCE_LETTERS = 60  # as the settings for short strings read
MOST_WORDS = 3
LARGEST_ALPHABET = 250
LEAST_USES = 2  # of a letter of a larger alphabet, on average
NEARLY_ALL = 0.95
_TOGETHER = 8192  # texts
# Scripts without spaces: Thai, Lao, Burmese, Khmer, kana, Han.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
_UNSPACED_WORD = 5  # letters
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


class Survey(NamedTuple):
    """The pairs of a file.

    Attributes:
        pairs: how many there are.
        strings: how they are learned as short strings, None where they are not.
        short_targets: whether targets are short strings, of sources that are not.
    """

    pairs: int
    strings: Strings | None
    short_targets: bool = False


def survey(pairs: Iterable[tuple[str, str]], total: int | None = None) -> Survey:
    """Look whether pairs, all or a sample of `total`, are learned letter by letter.

    That is decided by the targets: they are symbols of a small alphabet between spaces, as phones
    are, or have few words and letters, of a small alphabet. Sources are read letter by letter
    where they are short; those of phones have few words, too.
    """
    sources, targets = _Side(), _Side()
    pairs = iter(pairs)
    while chunk := list(itertools.islice(pairs, _TOGETHER)):
        for side, texts in zip((sources, targets), zip(*chunk, strict=True), strict=True):
            side.add(texts)
    count = sources.count if total is None else total
    if count < FEWEST:
        return Survey(count, None)
    preset = f"g2p-{'low' if count < 3_000 else 'medium' if count < 20_000 else 'high'}"
    readable = sources.has_used_letters()
    if targets.are_symbols() and readable and sources.share(MOST_LETTERS, MOST_WORDS):
        return Survey(count, Strings(preset, []))
    if not (targets.has_few_letters() and targets.share(MOST_LETTERS, MOST_WORDS)):
        return Survey(count, None)
    if not (readable and sources.share(MOST_SOURCE_LETTERS)):
        return Survey(count, None, short_targets=True)
    if preset == "g2p-low":
        return Survey(count, Strings("g2p-medium", [*_LETTERS, "epochs=150", "keep_by=score"]))
    epochs = 40 if preset == "g2p-medium" else 30
    return Survey(count, Strings(preset, [*_LETTERS, f"epochs={epochs}"]))


class _Side:
    """How the texts of one side look."""

    def __init__(self) -> None:
        self.count = self._words = 0
        self._sizes: Counter[tuple[int, int]] = Counter()  # letters and words, both bounded
        self._letters: Counter[str] = Counter()
        self._symbols: set[str] = set()

    def add(self, texts: Sequence[str]) -> None:
        self.count += len(texts)
        for text in texts:
            words = len(text.split()) + len(_UNSPACED.findall(text)) // _UNSPACED_WORD
            letters = min(len(text), MOST_SOURCE_LETTERS + 1)
            self._sizes[letters, min(words, MOST_WORDS + 1)] += 1
        self._letters.update(unicodedata.normalize("NFD", "".join(texts)))
        if len(self._symbols) <= LARGEST_ALPHABET:
            each = [text.split() for text in texts]
            self._words += sum(map(len, each))
            self._symbols.update(*each)

    def share(self, most_letters: int, most_words: int = MOST_WORDS + 1) -> bool:
        """Whether nearly all texts have at most so many letters and words."""
        short = sum(
            count
            for (letters, words), count in self._sizes.items()
            if letters <= most_letters and words <= most_words
        )
        return short >= NEARLY_ALL * self.count

    def has_few_letters(self) -> bool:
        return len(self._letters) <= LARGEST_ALPHABET

    def has_used_letters(self) -> bool:
        """Whether the alphabet is small, or its letters are used often enough to be learned."""
        return self.has_few_letters() or self._letters.total() >= LEAST_USES * len(self._letters)

    def are_symbols(self) -> bool:
        """Whether there are few symbols, and several in a text."""
        return len(self._symbols) <= LARGEST_ALPHABET and self._words >= 2 * self.count
