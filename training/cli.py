"""What the scripts share: one clear line for what a user can cause, and no trace."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

from training.config import Config, load_preset, override, preset_names
from training.errors import UserError


def positive_int(text: str) -> int:
    """Read an argument that counts something."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, not {text}")
    return int(text)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add `--set KEY=VALUE`, which may come again; they are a list, `settings`."""
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change one key of the preset; may be given several times",
    )


def add_configuration(parser: argparse.ArgumentParser, preset_needed: bool = True) -> None:
    """Add `--preset`, `--data` and `--set`, which `configuration` reads."""
    about = f"what to train: {', '.join(preset_names())}"
    parser.add_argument("--preset", required=preset_needed, metavar="NAME", help=about)
    parser.add_argument("--data", metavar="SPEC", help="a corpus, in place of the preset's")
    add_settings(parser)


def configuration(options: argparse.Namespace) -> Config:
    """Return the preset with the changes asked for.

    Raises:
        ConfigError: for an unknown preset or key, or a value that does not fit.
    """
    settings = [*options.settings, *([f"data={options.data}"] if options.data else [])]
    return override(load_preset(options.preset), settings)


def main_guard(main: Callable[[], None]) -> None:
    """Run a script's `main`; turn its user's errors into one line and exit status 1.

    Whatever is not a `UserError`, an OSError or an interruption is a defect of ours and keeps its
    trace.
    """
    try:
        main()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit("\nInterrupted.") from None
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        raise SystemExit(f"error: {error.strerror or error}{where}") from None
    except UserError as error:
        raise SystemExit(f"error: {error}") from None
