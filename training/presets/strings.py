"""Pairs of short strings are known by their looks: words and their phones, spellings, readings."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence
from typing import NamedTuple

FEWEST = 200  # pairs: of fewer, what is found may be chance
MOST_LETTERS = 40  # of a string
MOST_WORDS = 3
LARGEST_ALPHABET = 250
NEARLY_ALL = 0.95


class Strings(NamedTuple):
    """How pairs of short strings are learned.

    Attributes:
        preset: the settings for their number.
        settings: `KEY=VALUE`, in place of the preset's.
    """

    preset: str
    settings: list[str]


def short_strings(pairs: Sequence[tuple[str, str]]) -> Strings | None:
    """Return how pairs are learned whose sources are words, None for others.

    Sources have few words and letters, of a small alphabet. Targets are symbols of a small
    alphabet between spaces, as phones are, or as short as sources.

    Args:
        pairs: sources and targets.
    """
    if len(pairs) < FEWEST:
        return None
    sources, targets = zip(*pairs, strict=True)
    if not _short(sources):
        return None
    preset = f"g2p-{'low' if len(pairs) < 3_000 else 'medium' if len(pairs) < 20_000 else 'high'}"
    if _symbols(targets):
        return Strings(preset, [])
    if _short(targets):
        return Strings(preset, ["target_tokenizer=letters", "metric=characters"])
    return None


def _short(texts: Collection[str]) -> bool:
    short = sum(len(text) <= MOST_LETTERS and len(text.split()) <= MOST_WORDS for text in texts)
    letters = {letter for text in texts for letter in unicodedata.normalize("NFD", text)}
    return short >= NEARLY_ALL * len(texts) and len(letters) <= LARGEST_ALPHABET


def _symbols(texts: Collection[str]) -> bool:
    """Whether there are few symbols, and several in a text."""
    each = [text.split() for text in texts]
    count = sum(map(len, each))
    return count >= 2 * len(each) and len({x for one in each for x in one}) <= LARGEST_ALPHABET
