"""What a job can read: lines of text, images, tables of events; and what it says of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from serving.batch import files
from serving.client.events import TIME, read_table


@dataclass(frozen=True)
class Item:
    """A line, an image or a history.

    Attributes:
        name: what it is known by where it is bad: the line itself, a file's name, an id.
        value: what the model reads; None where `record` has an `error`.
        record: what the output says of it before the model has answered.
    """

    name: bytes
    value: Any = None
    record: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Texts:
    """Lines of a file, or a field of JSON lines.

    Attributes:
        field: the key of the text in JSON lines.
        longest: most bytes of a text.
    """

    field: str = "text"
    longest: int = 4000

    signature: ClassVar[str] = "translate"
    window: ClassVar[int] = 4096  # items read at a time, of which those of like size share a batch

    def items(self, path: Path) -> Iterator[Item]:
        """Yield the lines of a file."""
        key = self.field if files.is_json(path) else None
        for line in files.lines(path):
            try:
                text, record = files.text_of(line, key, self.longest)
            except ValueError as error:
                yield Item(line, record={"error": str(error)})
            else:
                yield Item(line, text, record)

    def size(self, value: str) -> int:
        """Return how long a text is."""
        return len(value)

    def record(self, answer: tuple[str, float, bool]) -> dict[str, Any]:
        """Return what the output says of a translation, its score, and whether it was too long."""
        translation, score, truncated = answer
        said: dict[str, Any] = {"translation": translation, "score": round(score, 4)}
        return {**said, "truncated": True} if truncated else said


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

    def record(self, answer: tuple[str, float]) -> dict[str, Any]:
        """Return what the output says of a text and its score."""
        text, score = answer
        return {"text": text, "score": round(score, 4)}


@dataclass(frozen=True)
class Events:
    """Histories of a table, a row for each visit, in the order in which their ids come.

    Attributes:
        field: the column of ids.
        time: the column of times.
    """

    field: str = "id"
    time: str = "time"

    signature: ClassVar[str] = "predict"
    window: ClassVar[int] = 4096

    def items(self, path: Path) -> Iterator[Item]:
        """Yield the histories of a table."""
        try:
            found = read_table(path, self.field, self.time)
        except (ValueError, EOFError) as error:
            raise files.InputError(str(error)) from None
        for person, history in found.items():
            yield Item(person.encode(errors="replace"), history, {self.field: person})

    def size(self, value: dict[str, list[str]]) -> int:
        """Return how many events a history has."""
        return len(value[TIME])

    def record(self, answer: float) -> dict[str, Any]:
        """Return what the output says of a probability."""
        return {"probability": round(answer, 6)}


Kind = Texts | Images | Events
