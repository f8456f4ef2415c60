"""The old name of `python -m serving.client predict`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from serving.client.__main__ import run_as


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    return run_as("predict", argv, "python -m serving.predict")


if __name__ == "__main__":
    sys.exit(main())
