"""Repeat an experiment: python -m lab NAME."""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from pathlib import Path

from training.command.errors import UsageError
from training.command.native import start_tensorflow
from training.command.options import Parser, going_on, main_guard

STUDIES = (
    *("alignment", "baselines", "compare", "gradients", "length", "mechanisms"),
    *("names", "order", "regions", "sigmorphon"),
)


def main(arguments: list[str] | None = None) -> None:
    """Run a study, a module of this folder; it ends in a table, a figure and a JSON object."""
    name, *words = (sys.argv[1:] if arguments is None else arguments) or [""]
    if name not in STUDIES:
        raise UsageError(f"python -m lab expected one of {', '.join(STUDIES)}. Received: {name}")
    start_tensorflow()
    study = importlib.import_module(f"lab.{name}")
    parser = Parser(prog=f"python -m lab {name}", description=study.__doc__.split("\n")[0])
    study.add_options(parser)
    default = Path("studies", name)
    parser.add_argument("--output", type=Path, default=default, metavar="DIR", help="of all files")
    options = parser.parse_args(words)
    options.output.mkdir(parents=True, exist_ok=True)
    try:
        with going_on("the same command goes on"):
            result = study.run(options)
    finally:
        with contextlib.suppress(OSError):  # it holds something
            options.output.rmdir()
    files = sorted(str(file) for file in options.output.glob("*.*") if file.is_file())
    print(json.dumps({"study": name, "files": files, **result}))


if __name__ == "__main__":
    main_guard(main)
