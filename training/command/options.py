"""Options that look the same in every command, and one clear line for a user's mistake."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from training.command.errors import UsageError, UserError, enough_memory
from training.command.parser import number_from_0, positive_int

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
        "tokenizers of whole words, characters or symbols",
    },
    "--precision": {
        "choices": ("float32", "bfloat16"),
        "default": "float32",
        "help": "precision of matrix products; bfloat16 is faster where the processor has it",
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
    """Add options that look the same in every command; `--run` and `--set` give lists."""
    for name in names:
        parser.add_argument(name, **OPTIONS[name])


@contextmanager
def going_on(how: str) -> Iterator[None]:
    """Where Ctrl-C is pressed, say how to go on; of what `main_guard` runs."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(how) from None


def _open_streams() -> None:
    """Write nowhere where standard output or error is closed, and escape what has no encoding.

    The next file that is opened would have the number of the closed one, and what native code
    writes would be in it.
    """
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            nothing = os.open(os.devnull, os.O_WRONLY)
            if nothing != number:
                os.dup2(nothing, number)
                os.close(nothing)
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8"))
        elif isinstance(stream, io.TextIOWrapper):  # of an encoding that may lack characters
            stream.reconfigure(errors="backslashreplace")


def main_guard(main: Callable[[], None]) -> None:
    """Run a script's `main`; turn its user's errors into one line.

    The exit status is 2 for a command line that cannot be followed, 130 where Ctrl-C was pressed,
    and else 1. Whatever is not a `UserError`, an OSError or an interruption is a defect of ours and
    keeps its trace.
    """
    _open_streams()
    try:
        with enough_memory("a batch of these sizes"):
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
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        raise SystemExit(f"error: {error.strerror or error}{where}") from None
    except UserError as error:
        raise SystemExit(f"error: {error}") from None
