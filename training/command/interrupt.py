"""Ctrl-C while a command imports its modules: print one line, as `main_guard` does later."""

import sys
from pathlib import Path
from types import TracebackType


def print_interrupt(
    kind: type[BaseException], error: BaseException, at: TracebackType | None
) -> None:
    """Print an uncaught error. For Ctrl-C, print one line and exit with status 130."""
    # Ctrl-C during the import of a native module raises an ImportError with this cause.
    if KeyboardInterrupt not in (kind, type(error.__cause__)):
        return sys.__excepthook__(kind, error, at)
    print("\nInterrupted.", file=sys.stderr)
    raise SystemExit(130)


# only in a command, not in a library user's program
if Path(sys.argv[0]).name in ("-m", "keras-attention"):
    sys.excepthook = print_interrupt
