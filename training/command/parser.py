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
    """A parser whose help names the defaults, and whose errors are one line, like all others.

    Args:
        description: of the command.
        examples: what can stand after the name of the command, for the end of the help.
        **settings: as of an ArgumentParser.

    Attributes:
        end_of_help: returns what stands before the examples, when help is asked for.
    """

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
        found = super().format_help()
        if self.examples:
            lines = "".join(f"  {self.prog} {words}\n" for words in self.examples)
            found += f"\nexamples:\n{lines}"
        return found

    def error(self, message: str) -> NoReturn:
        """End the process with status 2."""
        self.exit(2, f"error: {message}; {self.prog} --help says more\n")


def whole_number(text: str) -> int:
    """Read an argument that is a whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"invalid int value: {text!r}") from None


def positive_int(text: str) -> int:
    """Read an argument that counts something."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, not {text}")
    return int(text)


def number_from_0(text: str) -> float:
    """Read an argument that is a number of at least 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number of at least 0, not {text}")
    return value


def port(text: str) -> int:
    """Read a port; 0 is any that is free."""
    number = whole_number(text)
    if not 0 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"expected a port, 0 to 65535, received {text}")
    return number


def count(text: str) -> int:
    """Read a number of things, which may be 0."""
    number = whole_number(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"expected 0 or more, received {text}")
    return number


def seconds(text: str) -> float:
    """Read a time of more than 0 seconds and less than an hour."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 3600:
        raise argparse.ArgumentTypeError(
            f"expected seconds, above 0 and below 3600, received {text}"
        )
    return number


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
