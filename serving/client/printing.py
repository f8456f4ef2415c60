"""Texts of others on a terminal: escaped, so that they neither steer it nor break a line."""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from typing import Any

# Controls, line ends, halves of surrogate pairs, and what turns the order of the text around.
_UNPRINTABLE = ("Cc", "Cs", "Zl", "Zp")
_BIDI = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def printable(text: str) -> str:
    """Return a text with escapes in place of the characters that would steer a terminal."""
    return "".join(
        character.encode("unicode_escape").decode()
        if unicodedata.category(character) in _UNPRINTABLE
        or unicodedata.bidirectional(character) in _BIDI
        else character
        for character in text
    )


def first_line(error: Exception) -> str:
    """Return the first line of an error, or its class where it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def print_json(**fields: Any) -> None:
    """Print a JSON object in one line; what would steer a terminal is escaped as JSON does it."""
    text = json.dumps(fields, ensure_ascii=False)
    print(re.sub(r"[^\x20-\x7e]", _escaped, text))


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    return character if printable(character) == character else json.dumps(character)[1:-1]


def print_error(error: object) -> None:
    """Print an error as one line."""
    print(f"error: {printable(str(error))}", file=sys.stderr)


def install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install -e '.[{extra}]' in the repository"
