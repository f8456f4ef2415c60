"""Images that are made, not found, and folders of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

Box = tuple[float, float, float, float]
LABELS = "labels.tsv"


class Example(NamedTuple):
    """An image and its text."""

    image: bytes  # PNG
    text: str  # that stands in it
    # of each character, left, top, right and bottom as fractions of the image's size
    boxes: list[Box]


def write_folder(examples: Iterable[Example], folder: Path) -> None:
    """Write `0000.png` … and `labels.tsv`, file TAB text."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, example in enumerate(examples):
        name = f"{number:04d}.png"
        (folder / name).write_bytes(example.image)
        lines.append(f"{name}\t{example.text}\n")
    (folder / LABELS).write_text("".join(lines), encoding="utf-8")
