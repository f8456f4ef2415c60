"""Repeat an experiment: python -m training.study NAME."""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import json
from pathlib import Path

import training.command.extras  # noqa: F401
from training import studies
from training.command.options import going_on, main_guard
from training.command.parser import Parser
from training.studies.asked import STUDIES


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(
        prog="python -m training.study",
        description="Repeat an experiment. It ends in a table (CSV) and a figure (PNG) in the "
        "output directory. Models and translations of an earlier try there serve again. "
        "The last line is a JSON object.",
        examples=["mechanisms --output studies/mechanisms", "compare --help"],
    )
    names = parser.add_subparsers(dest="study", required=True, metavar="NAME")
    for name, study in STUDIES.items():
        found = names.add_parser(
            name, help=study.about, description=_description(name), examples=study.examples
        )
        study.add_options(found)
        found.add_argument(
            "--output",
            type=Path,
            default=Path("studies", name),
            metavar="DIR",
            help=f"default: studies/{name}",
        )
    return parser.parse_args(arguments)


def _description(name: str) -> str:
    """Return how a study is made: its module's text, which is not imported for it."""
    path = Path(studies.__file__).with_name(f"{name}.py")
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[2].split())


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    options = parse_arguments(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    try:
        with going_on("the same command goes on"):
            import training.command.startup  # noqa: F401

            study = importlib.import_module(f"training.studies.{options.study}")
            result = study.run(options)
    finally:
        with contextlib.suppress(OSError):  # it holds something
            options.output.rmdir()
    files = sorted(str(file) for file in options.output.glob("*.*") if file.is_file())
    print(json.dumps({"study": options.study, "files": files, **result}))


if __name__ == "__main__":
    main_guard(main)
