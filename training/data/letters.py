r"""Capitals and whole letters, for tokenizers of single letters: `characters` and `letters`.

A tokenizer's file has two tables, so that every program reads a text as training does:

- `cases`: a small letter for each capital that training never saw. In Turkish and Azerbaijani, I is
  the capital of ı, and İ of i: the alphabet has ı and no I. A key can have several letters, as the
  NFD form of İ, "I\u0307". At the end of a word, Σ is ς.
- `wholes`: each letter with marks that training saw, such as é, and its capital. Tokens of
  `letters` are the parts of a letter (Unicode's NFD). A letter is unknown if training saw only its
  parts. Korean syllables are known by their parts.

The client has a copy of this module.
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Literal

from training.data.rules import WHOLE_LETTER

DOTLESS, SIGMA, FINAL_SIGMA = "ı", "Σ", "ς"
MARKS = "\u0300-\u036f"  # combining marks of Latin, Greek and Cyrillic, as a range of characters
_WHOLE = re.compile(WHOLE_LETTER)


def cases_of(kind: str, tokens: Iterable[str]) -> dict[str, str]:
    """Return the small letters, one or several, of the capitals that are no tokens.

    Keys of several letters come first. They are replaced in the text, before it is split.
    """
    known = {*tokens}
    pairs = _capitals()
    if DOTLESS in known and "I" not in known:
        dotted = "I\u0307" if kind == "letters" else "İ"
        pairs = {**pairs, dotted: "i", "I": DOTLESS}
    form: Literal["NFC", "NFD"] = "NFD" if kind == "letters" else "NFC"
    cases = {
        capital: small
        for capital, small in pairs.items()
        if capital not in known and small in known and unicodedata.is_normalized(form, capital)
    }
    return dict(sorted(cases.items(), key=lambda case: (-len(case[0]), case[0])))


def with_small(text: str, cases: Mapping[str, str], tokens: Container[str]) -> str:
    """Return a text whose capitals of several letters, and each Σ at a word's end, are small."""
    for capital, small in itertools.takewhile(lambda case: len(case[0]) > 1, cases.items()):
        text = text.replace(capital, small)
    return _final_sigmas(text) if SIGMA in text and has_final_sigma(cases, tokens) else text


def has_final_sigma(cases: Mapping[str, str], tokens: Container[str]) -> bool:
    """Return whether Σ is ς after a letter, if no letter follows."""
    return SIGMA in cases and FINAL_SIGMA in tokens


def wholes_of(texts: Sequence[str], cases: Mapping[str, str], tokens: Iterable[str]) -> list[str]:
    """Return the letters of texts that are no tokens but have parts, and their capitals, in NFC."""
    known = {*tokens}
    seen = {letter for text in texts for letter in _different(unicodedata.normalize("NFC", text))}
    forms = {unicodedata.normalize("NFD", letter) for letter in seen} | known
    capitals = [capital for letter in seen for capital in (letter.upper(), letter.title())]
    composed = {unicodedata.normalize("NFC", capital) for capital in (*capitals, *cases)}
    seen |= {x for x in composed if small_form(x, cases, known) in forms}
    return sorted(x for x in seen - known - cases.keys() if not is_syllable(x))


def small_form(text: str, cases: Mapping[str, str], tokens: Container[str]) -> str:
    """Return a text in NFD, with small letters for capitals that training never saw."""
    text = with_small(unicodedata.normalize("NFD", text), cases, tokens)
    return "".join(cases.get(letter, letter) for letter in text)


def letters_of(text: str) -> list[str]:
    """Return the letters of a text in NFC, each with its marks."""
    return _WHOLE.findall(text)


def is_syllable(letter: str) -> bool:
    """Return whether a letter is a Korean syllable in one character."""
    return "가" <= letter <= "힣" and len(letter) == 1


def syllables(tokens: Container[str]) -> list[str]:
    """Return the Korean syllables whose parts are all tokens."""
    every = map(chr, range(ord("가"), ord("힣") + 1))
    return [x for x in every if all(part in tokens for part in unicodedata.normalize("NFD", x))]


def _different(text: str) -> set[str]:
    """Return the different letters of a text in NFC."""
    return (
        {*letters_of(text)} if any("\u0300" <= letter <= "\u036f" for letter in text) else {*text}
    )


@functools.cache
def _capitals() -> dict[str, str]:
    """Return the small form, one character or more, of each capital of one character."""
    each = map(chr, itertools.chain(range(0xD800), range(0xE000, 0x110000)))
    return {capital: small for capital in each if (small := capital.lower()) != capital}


def _final_sigmas(text: str) -> str:
    """Return a text in which Σ is ς after a letter, if no letter follows."""

    def is_letter(place: int) -> bool:
        return unicodedata.category(text[place : place + 1] or " ")[0] in "LM"

    return "".join(
        FINAL_SIGMA
        if letter == SIGMA and place and is_letter(place - 1) and not is_letter(place + 1)
        else letter
        for place, letter in enumerate(text)
    )
