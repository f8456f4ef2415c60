"""Reads images with a served model: python -m serving.read --model digits IMAGE …

With `--regions --png FILE` it draws where the model looked.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence

from serving.client.errors import ServingError
from serving.client.options import add_connection, connection_options
from serving.client.readers import Reader
from serving.client.reading import image_file
from training.command.parser import Parser, file_to_write


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m serving.read",
        description="Reads images, PNG or JPEG, with a served model.",
    )
    parser.add_argument("images", nargs="+", metavar="IMAGE", help="files")
    add_connection(parser, "images")
    parser.add_argument("--regions", action="store_true", help="where the model looked")
    parser.add_argument(
        "--png", type=file_to_write, metavar="FILE", help="with --regions: draw it over the image"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object an image")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Read; returns the exit status, 1 where an image could not be read."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.png and not arguments.regions:
        parser.error("--png needs --regions")
    status = 0
    try:
        with Reader(**connection_options(arguments)) as reader:
            if arguments.wait_ready is not None:
                reader.wait_ready(arguments.wait_ready)
            files = [image_file(path) for path in arguments.images]
            read = reader.regions if arguments.regions else reader.read
            for number, answer in enumerate(read(files, keep_errors=True)):
                name = arguments.images[number]
                if isinstance(answer, ServingError):
                    print(f"error: {name}: {answer}", file=sys.stderr)
                    status = 1
                    continue
                if arguments.json:
                    print(json.dumps({"image": name, **dataclasses.asdict(answer)}))
                else:
                    print(f"{answer.score:.4f}\t{answer.text}\t{name}")
                if arguments.png:
                    _draw(arguments, number, files[number], answer)
    except (ServingError, OSError, ValueError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return status


def _draw(arguments: argparse.Namespace, number: int, file: bytes, answer: object) -> None:
    from serving.client.overlays import draw_regions
    from serving.client.reading import Regions

    assert isinstance(answer, Regions)
    path = arguments.png
    if len(arguments.images) > 1:
        path = path.with_stem(f"{path.stem}-{number + 1}")
    draw_regions(file, answer, path)


if __name__ == "__main__":
    sys.exit(main())
