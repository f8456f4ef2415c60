"""Command lines: a parser whose errors are one line, and the arguments that several have."""

from __future__ import annotations

import argparse
import math
import os
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn


class Help(argparse.RawDescriptionHelpFormatter):
    """Names the default of each argument that has one."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        default = action.default
        nothing = default is None or default is False or default in ("", [], argparse.SUPPRESS)
        if nothing or "default: " in text.lower():
            return text
        value = f"{default:g}" if isinstance(default, float) else default
        return f"{text}{'; ' if text else ''}default: {str(value).replace('%', '%%')}"


class Parser(argparse.ArgumentParser):
    """A parser: its help names the defaults and ends in examples, its errors are one line."""

    end_of_help: Callable[[], str] | None = None

    def __init__(
        self, description: str | None = None, examples: Sequence[str] = (), **settings: Any
    ) -> None:
        self.examples = examples
        description = textwrap.fill(description or "", 79)
        super().__init__(description=description, **{"formatter_class": Help, **settings})

    def format_help(self) -> str:
        """Return the help, whose end may take long to find out."""
        if self.end_of_help is not None:
            self.epilog = self.end_of_help()
        text = super().format_help()
        if self.examples:
            lines = "".join(f"  {self.prog} {words}".rstrip() + "\n" for words in self.examples)
            text += f"\nexamples:\n{lines}"
        return text

    def error(self, message: str) -> NoReturn:
        """End the process with status 2."""
        self.exit(2, f"error: {message}; {self.prog} --help says more\n")


def _number(kind: type, wanted: str, fits: Callable[[Any], bool]) -> Callable[[str], Any]:
    """Return what reads an argument that is a number, and refuses all others."""

    def read(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not fits(value):
            raise argparse.ArgumentTypeError(f"expected {wanted}. Received: {text}")
        return value

    return read


def between(least: int, most: int) -> Callable[[str], int]:
    """Return what reads a whole number of a range, its ends included."""
    return _number(int, f"a whole number of {least} to {most}", lambda n: least <= n <= most)


whole_number = _number(int, "a whole number", lambda n: True)
count = _number(int, "a whole number of at least 0", lambda n: n >= 0)
positive_int = _number(int, "a whole number of at least 1", lambda n: n >= 1)
port = _number(int, "a port, 0 to 65535", lambda n: 0 <= n <= 65535)
number_from_0 = _number(float, "a number of at least 0", lambda x: 0 <= x < math.inf)
seconds = _number(float, "seconds, above 0 and below 3600", lambda x: 0 < x < 3600)


def file_to_write(text: str) -> Path:
    """Read the place of a result: before long work, find out whether it can be written."""
    path = Path(text)
    if path.is_dir():
        reason = "it is a directory"
    elif not path.parent.is_dir():
        reason = f"there is no directory {path.parent}"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        reason = "permission denied"
    else:
        return path
    raise argparse.ArgumentTypeError(f"cannot write {path}: {reason}")
