"""Images that are made, not found, and folders of them."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from training.command.files import replacing

Box = tuple[float, float, float, float]
LABELS = "labels.tsv"


class Example(NamedTuple):
    """An image and its text."""

    image: bytes  # PNG
    text: str  # that stands in it
    # of each character, left, top, right and bottom as fractions of the image's size
    boxes: list[Box]


def cached(file: Path, make: Callable[[], list[Example]]) -> list[Example]:
    """Return the examples in a file; make them and write it where it cannot be read."""
    with suppress(OSError, ValueError, TypeError):
        return [
            Example(base64.b64decode(image), text, [tuple(box) for box in boxes])
            for image, text, boxes in json.loads(file.read_bytes())
        ]
    made = make()
    rows = [(base64.b64encode(image).decode(), *rest) for image, *rest in made]
    own = file.with_name(f"writing-{os.getpid()}-{file.name}")  # another process may make them
    with suppress(OSError):  # without the file, they are made again
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file, own) as aside:
            aside.write_text(json.dumps(rows))
    return made


def write_folder(examples: Iterable[Example], folder: Path) -> None:
    """Write `0000.png` … and `labels.tsv`, file TAB text."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, example in enumerate(examples):
        name = f"{number:04d}.png"
        (folder / name).write_bytes(example.image)
        lines.append(f"{name}\t{example.text}\n")
    (folder / LABELS).write_text("".join(lines), encoding="utf-8")
