"""Images of a job: files of a folder, which are read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from serving.batch import files
from serving.batch.kind import Function, Item, outputs


@dataclass(frozen=True)
class Images:
    """Files of a folder, in the order of their names."""

    field: str = "image"
    signature: ClassVar[str] = "read"
    window: ClassVar[int] = 256  # files in memory

    def items(self, path: Path) -> Iterator[Item]:
        """Yield the images of a folder."""
        for file in files.images(path):
            record, name = {self.field: file.name}, file.name.encode(errors="replace")
            try:
                yield Item(name, file.read_bytes(), record)
            except OSError as error:
                yield Item(name, None, {**record, "error": error.strerror or "cannot be read"})

    def size(self, value: bytes) -> int:
        """Return 0: all are made of one size."""
        return 0

    def answer(
        self, function: Function, values: Sequence[bytes]
    ) -> list[tuple[str, float] | ValueError]:
        """Return text and score of each file; where one is broken, the others are read without."""
        import tensorflow as tf

        try:
            found = function(image_bytes=tf.constant(list(values), tf.string))
            return [
                (text.decode("utf-8", "replace"), float(score))
                for text, score in outputs(found, "text", "score")
            ]
        except tf.errors.InvalidArgumentError as error:
            if len(values) == 1:
                return [ValueError(_reason(error.message))]
        half = len(values) // 2
        return self.answer(function, values[:half]) + self.answer(function, values[half:])

    def record(self, answer: tuple[str, float]) -> dict[str, Any]:
        """Return what the output says of a text and its score."""
        text, score = answer
        return {"text": text, "score": round(score, 4)}


def _reason(message: str) -> str:
    """Return what an export says of the one image it was given."""
    found = re.search(r"image_bytes\[0\] ([^\]\n']+)", message)
    return found[1].strip() if found else "not an image that can be read"
