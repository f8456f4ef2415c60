"""The old name of `python -m training.train --resume`, for prepared runs."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from training.command.options import Parser, main_guard


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(
        prog="python -m training.train_arrays",
        description="The old name of python -m training.train --resume --output RUN.",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="the run directory")
    run = str(parser.parse_args(arguments).run)
    print(
        f"note: the new command is python -m training.train --resume --output {run}",
        file=sys.stderr,
    )
    importlib.import_module("training.train").main(["--resume", "--output", run])


if __name__ == "__main__":
    main_guard(main)
