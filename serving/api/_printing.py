"""Prints untrusted texts: escapes control characters, so that they cannot control a terminal."""

from __future__ import annotations

import io
import json
import math
import re
import sys
import unicodedata
from typing import Any

from training.command.visible import visible

# Controls, surrogates and line ends; below, characters that change the direction of text.
_UNPRINTABLE = ("Cc", "Cs", "Zl", "Zp")
PACKAGES = {"google": "protobuf", "grpc": "grpcio", "PIL": "pillow"}  # names of packages by module
_BIDI = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def printable(text: str) -> str:
    """Return a text with escapes for the characters that could control a terminal."""
    return "".join(
        character.encode("unicode_escape").decode()
        if unicodedata.category(character) in _UNPRINTABLE
        or unicodedata.bidirectional(character) in _BIDI
        else character
        for character in text
    )


def first_line(error: Exception) -> str:
    """Return the first line of an error, or its class without a message; a file name comes last."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.strerror}: {error.filename}"
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def escape_missing() -> None:
    """Make the standard output escape characters that its encoding lacks."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def print_json(**fields: Any) -> None:
    """Print a JSON object on one line; JSON escapes replace characters that control a terminal."""
    text = json.dumps(_finite(fields), ensure_ascii=False, allow_nan=False)
    print(re.sub(r"[^\x20-\x7e]", _escaped, text))


def _finite(value: Any) -> Any:
    """Return a value with None instead of numbers that JSON lacks: NaN and infinity."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    return character if printable(character) == character else json.dumps(character)[1:-1]


def print_error(error: object) -> None:
    """Print an error as one line."""
    text = first_line(error) if isinstance(error, OSError) else str(error)
    print(f"error: {visible(text)}", file=sys.stderr)


def not_installed(module: str, extra: str) -> str:
    """Return the error for a missing module: its package, and the extra that installs it."""
    package = PACKAGES.get(module, module)
    return f"{package} is not installed: pip install -e '.[{extra}]' in the repository"
