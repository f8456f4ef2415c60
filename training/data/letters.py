r"""Capitals and whole letters, for tokenizers of single letters: `characters` and `letters`.

A tokenizer's file has two tables, so that every program reads a text as training does:

- `cases`: a small letter for each capital that training never saw as a letter. In Turkish and
  Azerbaijani, I is the capital of ı, and İ of i: the alphabet has ı and no I. A key can have
  several letters, as the NFD form of İ, "I\u0307". At the end of a word, Σ is ς.
- `known`: each letter that training saw, in NFC, with its marks, and its capital. Tokens of
  `letters` are the parts of a letter (Unicode's NFD). A letter is unknown if training saw only its
  parts, or saw it only as a part: n is unknown if ñ was seen alone. In `letters`, Korean syllables
  are known by their parts.

The client has a copy of this module.
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections.abc import Container, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from training.data.rules import MARKS, WHOLE_LETTER

DOTLESS, SIGMA, FINAL_SIGMA = "ı", "Σ", "ς"
_WHOLE, _MARK = re.compile(WHOLE_LETTER), re.compile(f"[{MARKS}]")


class Alphabet(NamedTuple):
    """What training learned of letters."""

    tokens: list[str]
    cases: dict[str, str]
    known: list[str]


def alphabet_of(kind: str, texts: Iterable[str], tokens: Iterable[str]) -> Alphabet:
    """Return the tokens and tables of a tokenizer of letters, from its training texts.

    `tokens` are all characters of the texts, or of their NFD form. Capitals that occur only as
    parts of letters, as E in É, are left out, so that É is read as é, and E as e.
    """
    seen = {letter for text in texts for letter in _different(text)}
    tokens = list(tokens)
    cases = cases_of(kind, tokens, seen)
    kept = [token for token in tokens if token not in cases]
    return Alphabet(kept, cases, _known(kind, seen, cases, {*kept}))


def cases_of(
    kind: str, tokens: Iterable[str], seen: Container[str] | None = None
) -> dict[str, str]:
    """Return the small letters, one or several, of the capitals that training never saw.

    Keys of several letters come first. They are replaced in the text, before it is split.

    Args:
        kind: `characters` or `letters`.
        tokens: all characters of the training texts, or of their NFD form.
        seen: the letters of these texts, in NFC; None: all tokens are letters.
    """
    parts = {*tokens}
    known = parts if seen is None else {token for token in parts if token in seen}
    pairs = _capitals()
    if DOTLESS in known and "I" not in known:
        dotted = "I\u0307" if kind == "letters" else "İ"
        pairs = {**pairs, dotted: "i", "I": DOTLESS}
    cases = {
        capital: small
        for capital, small in pairs.items()
        if capital not in known
        and small in parts
        and unicodedata.is_normalized(_form(kind), capital)
    }
    return dict(sorted(cases.items(), key=lambda case: (-len(case[0]), case[0])))


def known_in(state: Mapping[str, Any]) -> list[str] | None:
    """Return the known letters of a tokenizer's file; None if the file does not have them.

    Files of earlier versions have `wholes`, the known letters with marks.
    """
    known: list[str] | None = state.get("known")
    if known is None and "wholes" in state:
        tokens, cases = {*state["tokens"]}, state.get("cases", {})
        capitals = [capital for capital, small in cases.items() if small in tokens]
        return [*state["tokens"], *capitals, *state["wholes"]]
    return known


def with_small(text: str, cases: Mapping[str, str], tokens: Container[str]) -> str:
    """Return a text whose capitals of several letters, and each Σ at a word's end, are small."""
    for capital, small in itertools.takewhile(lambda case: len(case[0]) > 1, cases.items()):
        text = text.replace(capital, small)
    return _final_sigmas(text) if SIGMA in text and has_final_sigma(cases, tokens) else text


def has_final_sigma(cases: Mapping[str, str], tokens: Container[str]) -> bool:
    """Return whether Σ is ς after a letter, if no letter follows."""
    return SIGMA in cases and FINAL_SIGMA in tokens


def small_form(kind: str, text: str, cases: Mapping[str, str], tokens: Container[str]) -> str:
    """Return a text as it is split, with small letters for capitals that training never saw."""
    text = with_small(unicodedata.normalize(_form(kind), text), cases, tokens)
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


def _known(
    kind: str, seen: set[str], cases: Mapping[str, str], tokens: Container[str]
) -> list[str]:
    """Return the letters that count as known, in NFC: those seen, and capitals that become these.

    Korean syllables of `letters` are left out.
    """
    forms = {letter: small_form(kind, letter, cases, tokens) for letter in seen}
    small = {*forms.values()}
    known = {*seen, *(unicodedata.normalize("NFC", letter) for letter in small)}
    capitals = {capital for letter in known for capital in (letter.upper(), letter.title())}
    for capital in (*capitals, *cases):
        if small_form(kind, capital, cases, tokens) in small:
            known.add(unicodedata.normalize("NFC", capital))
    return sorted(letter for letter in known if kind != "letters" or not is_syllable(letter))


def _form(kind: str) -> Literal["NFC", "NFD"]:
    return "NFD" if kind == "letters" else "NFC"


def _different(text: str) -> set[str]:
    """Return the different letters of a text, in NFC."""
    text = unicodedata.normalize("NFC", text)
    return {*letters_of(text)} if _MARK.search(text) else {*text}


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
