"""Repeat an experiment: python -m training.study NAME."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import training.command.extras  # noqa: F401
from training.command.options import main_guard
from training.command.parser import Parser

STUDIES = {  # module of training.studies, and what it finds
    "length": ("length", "BLEU by source length, without attention and with"),
    "regions": ("regions", "images: score functions, no attention, and CTC at equal training"),
    "order": ("order", "histories: the order of events, attention, and what needs neither"),
    "mechanisms": ("mechanisms", "every attention mechanism at equal size and training"),
    "gradients": ("gradients", "the gradient's norm over the distance to the loss"),
    "alignment": ("alignment", "alignment error rate by mechanism, and heat-maps"),
    "names": ("names", "whether names that training never saw come through a translation"),
    "sigmorphon": (
        "sigmorphon",
        "spelling to sound in 21 languages, beside the contest's baseline",
    ),
    "compare": ("compare", "whether one recipe is better than another, or chance explains it"),
}


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(
        prog="python -m training.study",
        description="Repeat an experiment. It ends in a table (CSV) and a figure (PNG) in the "
        "output directory. What is there of an earlier try, models and translations, is used "
        "again. The last line is a JSON object.",
        examples=["mechanisms --output studies/mechanisms", "compare --help"],
    )
    words = sys.argv[1:] if arguments is None else arguments
    names = parser.add_subparsers(dest="study", required=True, metavar="NAME")
    for name, (module, about) in STUDIES.items():
        found = names.add_parser(name, help=about)
        if name in words[:1]:  # the others' modules take seconds, and are not asked
            study = _study(module)
            found.description = (study.__doc__ or "").partition("\n\n")[2]
            study.add_arguments(found)
        found.add_argument(
            "--output",
            type=Path,
            default=Path("studies", name),
            metavar="DIR",
            help=f"default: studies/{name}",
        )
    return parser.parse_args(words)


def _study(module: str) -> ModuleType:
    import training.command.startup  # noqa: F401

    return importlib.import_module(f"training.studies.{module}")


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    options = parse_arguments(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    try:
        result = _study(STUDIES[options.study][0]).run(options)
    finally:
        with contextlib.suppress(OSError):  # it holds something
            options.output.rmdir()
    files = sorted(str(file) for file in options.output.glob("*.*") if file.is_file())
    print(json.dumps({"study": options.study, "files": files, **result}))


if __name__ == "__main__":
    main_guard(main)
