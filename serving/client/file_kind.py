"""A kind of files that a reader reads, declared: see `serving.client.file_kinds`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class FileKind:
    """A kind of files, each of which has a text.

    Attributes:
        name: of one, in errors, outputs and on the page; the key `source` of its runs.
        endings: of names of its files, in lower case.
        starts: the first bytes of its files.
        input: of the signature `read`, by which a model's kind is known.
        row: from an example (a path, bytes, or another form) to a row of a request. Raises OSError
            or ValueError.
        inputs: from rows to the inputs of a request: bytes, or numbers in nested lists.
        picture: from a row to an array `(H, W, 3)` of uint8 that weights are drawn over.
    """

    name: str
    endings: tuple[str, ...]
    starts: tuple[bytes, ...]
    input: str
    row: Callable[[Any], Any]
    inputs: Callable[[Sequence[Any]], dict[str, Sequence[Any]]]
    picture: Callable[[Any], Any]

    def is_name(self, name: str) -> bool:
        """Whether a file of this name is of this kind."""
        return name.lower().endswith(self.endings)

    def is_one(self, example: Any) -> bool:
        """Whether an example shows to be of this kind, by the name or the bytes of a file."""
        if isinstance(example, bytes):
            return example.startswith(self.starts)
        return self.is_name(str(example))
