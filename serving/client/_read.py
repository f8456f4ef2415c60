"""Reads images with a served model: python -m serving.client read --model NAME IMAGE …

`--regions --png FILE` draws the attention weights over the image. `--local` runs the model in this
process, without a server.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from serving.api._errors import ServingError
from serving.api._printing import print_error, print_json, printable
from serving.client._options import Parser, ended, numbered, opened_model


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status, 1 if an image could not be read."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.png and not arguments.regions:
        parser.error("--png needs --regions")
    return ended(_ask, arguments)


def _parser() -> argparse.ArgumentParser:
    examples = (
        "--model digits digits/*.png",
        "--local models/digits/1 --regions --png looked.png digits/0.png",
    )
    text = "Reads images, PNG or JPEG, with a served model, or here with --local."
    png = "with --regions: draw it over the image"
    parser = Parser("python -m serving.client read", text, examples, "images", "an image", png)
    parser.add_argument("images", nargs="+", metavar="IMAGE", help="image files")
    parser.add_argument("--regions", action="store_true", help="attention weights, too")
    return parser


def _ask(arguments: argparse.Namespace) -> int:
    from serving.api._results import Regions
    from serving.client._drawing import draw_regions

    status = 0
    with opened_model(arguments, "Reader") as reader:
        files = [Path(path).read_bytes() for path in arguments.images]
        read = reader.regions if arguments.regions else reader.read
        for number, answer in enumerate(read(files, keep_errors=True)):
            name = arguments.images[number]
            if isinstance(answer, ServingError):
                print_error(f"{name}: {answer}")
                status = 1
                continue
            if arguments.json:
                print_json(image=name, **asdict(answer))
            else:
                print(f"{answer.score:.4f}\t{printable(answer.text)}\t{printable(name)}")
            if arguments.png and isinstance(answer, Regions):
                draw_regions(files[number], answer, numbered(arguments.png, number, len(files)))
    return status
