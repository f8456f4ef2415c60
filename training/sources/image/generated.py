"""Images that are made, not found, and folders of them."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from training.command.files import replacing

Box = tuple[float, float, float, float]
LABELS = "labels.tsv"


class Example(NamedTuple):
    """An image and its text.

    Attributes:
        image: PNG.
        text: that stands in it.
        boxes: of each character, left, top, right and bottom as fractions of the image's size.
    """

    image: bytes
    text: str
    boxes: list[Box]


def cached(file: Path, make: Callable[[], list[Example]]) -> list[Example]:
    """Return the examples in a file; make them and write it where it cannot be read."""
    try:
        # NumPy leaves a file open that turns out to be no archive.
        with file.open("rb") as opened, np.load(opened) as arrays:
            files, ends = arrays["files"].tobytes(), arrays["ends"].tolist()
            labels = json.loads(arrays["labels"].tobytes())
        starts = [0, *ends[:-1]]
        images = [files[start:end] for start, end in zip(starts, ends, strict=True)]
        return [
            Example(image, text, [tuple(box) for box in boxes])
            for image, (text, boxes) in zip(images, labels, strict=True)
        ]
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
        made = make()
    own = file.with_name(f"writing-{os.getpid()}-{file.name}")  # another process may make them
    with suppress(OSError):  # without the file, they are made again
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file, own) as aside:
            np.savez(
                aside,
                files=np.frombuffer(b"".join(example.image for example in made), np.uint8),
                ends=np.cumsum([len(example.image) for example in made]),
                labels=np.frombuffer(json.dumps([each[1:] for each in made]).encode(), np.uint8),
            )
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
