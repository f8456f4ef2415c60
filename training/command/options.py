"""Command lines: the parser, options that several commands share, and one-line errors."""

from __future__ import annotations

import argparse
import errno
import io
import math
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from training.command.errors import UsageError, UserError, described, enough_memory
from training.command.visible import visible


class Help(argparse.RawDescriptionHelpFormatter):
    """A help formatter that shows the default of each argument that has a default."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        default = action.default
        nothing = default is None or default is False or default in ("", [], argparse.SUPPRESS)
        if nothing or "default: " in text.lower():
            return text
        value = f"{default:g}" if isinstance(default, float) else default
        return f"{text}{'; ' if text else ''}default: {str(value).replace('%', '%%')}"


class Parser(argparse.ArgumentParser):
    """An argument parser whose help shows defaults and examples, and whose errors are one line."""

    def __init__(
        self, description: str | None = None, examples: Sequence[str] = (), **settings: Any
    ) -> None:
        self.examples = examples
        description = textwrap.fill(description or "", 79)
        super().__init__(description=description, **{"formatter_class": Help, **settings})

    def format_help(self) -> str:
        """Return the help with the examples."""
        text = super().format_help()
        if self.examples:
            lines = "".join(f"  {self.prog} {words}".rstrip() + "\n" for words in self.examples)
            text += f"\nexamples:\n{lines}"
        return text

    def error(self, message: str) -> NoReturn:
        """Print the error and end the process with status 2."""
        self.exit(2, f"error: {visible(message)}. See {self.prog} --help\n")


def _number(kind: type, wanted: str, fits: Callable[[Any], bool]) -> Callable[[str], Any]:
    """Return a parser of a number argument. The parser rejects text that is no fitting number."""

    def read(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not fits(value):
            raise argparse.ArgumentTypeError(f"needs {wanted}, but it is {text or 'empty'}")
        return value

    return read


def between(least: int, most: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from `least` to `most`, both included."""
    return _number(int, f"a whole number of {least} to {most}", lambda n: least <= n <= most)


count = _number(int, "a whole number of at least 0", lambda n: n >= 0)
positive_int = _number(int, "a whole number of at least 1", lambda n: n >= 1)
port = _number(int, "a port, 0 to 65535", lambda n: 0 <= n <= 65535)
number_from_0 = _number(float, "a number of at least 0", lambda x: 0 <= x < math.inf)
seconds = _number(float, "seconds, above 0 and below 3600", lambda x: 0 < x < 3600)


def file_to_write(text: str) -> Path:
    """Return the path of a result file, after a check that the file can be written.

    The check runs before long work starts.
    """
    path = Path(text)
    if path.exists() and not path.is_file():  # a device would be replaced by a file
        reason = "it is a directory" if path.is_dir() else "it is no file"
    elif not path.parent.is_dir():
        reason = f"there is no directory {path.parent}"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        reason = "permission denied"
    else:
        return path
    raise argparse.ArgumentTypeError(f"cannot write {path}: {reason}")


def folder_to_write(text: str) -> Path:
    """Return the path of a result folder, after a check that the folder can be created.

    The check runs before long work starts.
    """
    path = Path(text)
    there = next(each for each in (path, *path.absolute().parents) if each.exists())
    if not there.is_dir():
        reason = f"{there} is no directory"
    elif not os.access(there, os.W_OK):
        reason = f"permission denied: {there}"
    else:
        return path
    raise argparse.ArgumentTypeError(f"cannot write {path}: {reason}")


OPTIONS: dict[str, dict[str, Any]] = {
    "--run": {
        "dest": "runs",
        "action": "append",
        "required": True,
        "metavar": "DIR",
        "type": Path,
        "help": "a trained run; several with the same tokenizers are used as an ensemble, which "
        "averages their probabilities",
    },
    "--beam-width": {
        "type": positive_int,
        "default": 5,
        "metavar": "N",
        "help": "hypotheses kept for each sentence; 1 is greedy search",
    },
    "--length-penalty": {
        "type": number_from_0,
        "default": 1.0,
        "metavar": "X",
        "help": "scores are divided by ((5 + length) / 6) ** X",
    },
    "--coverage-penalty": {
        "type": number_from_0,
        "default": 0.0,
        "metavar": "X",
        "help": "weight of Wu et al.'s coverage penalty (2016) for source tokens that get no "
        "attention; needs text sources and a beam; default: 0",
    },
    "--replace-unknown": {
        "action": "store_true",
        "help": "replace each unknown word by the source word with the most attention; needs "
        "tokenizers of words, characters, letters or symbols",
    },
    "--precision": {
        "choices": ("float32", "bfloat16"),
        "default": "float32",
        "help": "precision of matrix products; bfloat16 needs a single run, and a processor that "
        "supports it is faster with it",
    },
    "--batch-size": {
        "type": positive_int,
        "metavar": "N",
        "help": "sentences translated together; default: 64, on a GPU 512",
    },
    "--lowercase": {"action": "store_true", "help": "compare in lower case"},
    "--limit": {"type": positive_int, "metavar": "N", "help": "score N sentences, drawn at random"},
    "--set": {
        "dest": "settings",
        "action": "append",
        "default": [],
        "metavar": "KEY=VALUE",
        "help": "change one key of the preset; may be given several times",
    },
}
SEARCH = ("--beam-width", "--length-penalty", "--coverage-penalty", "--replace-unknown")


def add_options(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add options that are the same in every command. `--run` and `--set` collect lists."""
    for name in names:
        parser.add_argument(name, **OPTIONS[name])


@contextmanager
def going_on(how: str | Callable[[], str]) -> Iterator[None]:
    """Add `how`, the way to resume, to the message that `main_guard` prints after Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(how if isinstance(how, str) else how()) from None


def _open_streams() -> None:
    """Open closed standard streams on the null device, and escape unencodable characters.

    Otherwise the next opened file gets the number of the closed stream, and native code writes
    into that file.
    """
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            nothing = os.open(os.devnull, os.O_WRONLY)
            if nothing != number:
                os.dup2(nothing, number)
                os.close(nothing)
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8"))
        elif isinstance(stream, io.TextIOWrapper):  # its encoding may lack characters
            stream.reconfigure(errors="backslashreplace")


def main_guard(main: Callable[[], None]) -> None:
    """Run a script's `main` and print a user error as one line.

    The exit status is 2 for a wrong command line, 130 after Ctrl-C, and 1 for any other error. An
    exception other than UserError, OSError and KeyboardInterrupt is a bug and keeps its traceback.
    """
    _open_streams()
    try:
        with enough_memory("Use smaller batches: --set batch_size=N, or --batch-size N"):
            main()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except KeyboardInterrupt as interrupt:
        how = f": {interrupt}" if str(interrupt) else "."
        print(f"\nInterrupted{how}", file=sys.stderr)
        raise SystemExit(130) from None
    except UsageError as error:
        print(f"error: {visible(str(error))}", file=sys.stderr)
        raise SystemExit(2) from None
    except OSError as error:
        if error.filename is None and error.errno == errno.ENOSPC:  # `naming` names all other files
            error.filename = "standard output"
        raise SystemExit(f"error: {visible(described(error))}") from None
    except UserError as error:
        raise SystemExit(f"error: {visible(str(error))}") from None
