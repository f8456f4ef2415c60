"""Ctrl-C while a command's modules are imported: one line, as `main_guard` prints later."""

import sys
from pathlib import Path
from types import TracebackType


def print_interrupt(
    kind: type[BaseException], error: BaseException, at: TracebackType | None
) -> None:
    """Print an error that nothing has caught, an interruption in one line; the status is 130."""
    # A native module that is interrupted while it is imported ends in an ImportError.
    if KeyboardInterrupt not in (kind, type(error.__cause__)):
        return sys.__excepthook__(kind, error, at)
    print("\nInterrupted.", file=sys.stderr)
    raise SystemExit(130)


if Path(sys.argv[0]).name in ("-m", "keras-attention"):  # a command begins, no library of others
    sys.excepthook = print_interrupt
