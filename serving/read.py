"""The old name of `python -m serving.client read`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from serving.client.__main__ import run_as


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    return run_as("read", argv, "python -m serving.read")


if __name__ == "__main__":
    sys.exit(main())
