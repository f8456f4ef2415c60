"""The inputs of a job, and the places of their outputs: texts, tables of events, or images.

An input is a file of lines or rows, or images of a folder: `FOLDER/*.png` stands for those that
match.
"""

from __future__ import annotations

import argparse
import codecs
import glob
import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, ClassVar, Self

from serving.api.histories import TIME, History, Table, history_columns, padded_columns, read_table
from serving.api.image_files import INPUT, is_image
from training.command.errors import UserError

ENDINGS = (".jsonl", ".json", ".txt", ".csv")
_FIELD = "text"  # of JSON lines


class JobError(UserError):
    """A job that cannot be done as asked."""


def find(patterns: Sequence[str], output: Path) -> list[Path]:
    """Return the inputs that the patterns name, each once.

    Raises JobError if a pattern names nothing, two inputs would have one output, or they are of
    several kinds.
    """
    by_output: dict[Path, Path] = {}
    for pattern in patterns:
        paths = list(_inputs(pattern))
        if not paths:
            raise JobError(f"no file matches {pattern}")
        for path in paths:
            other = by_output.setdefault(target(path, output), path)
            if other != path:
                raise JobError(f"{other} and {path} would have the same output: rename one")
            if path.is_relative_to(output.resolve()):
                raise JobError(f"{path} is in the output: choose another --output")
    kinds = {kind_of(path): path for path in by_output.values()}
    if len(kinds) > 1:
        first, second = list(kinds.values())[:2]
        raise JobError(f"expected inputs of one kind. Received: {first} and {second}")
    return list(by_output.values())


def _inputs(pattern: str) -> Iterator[Path]:
    """Yield the files of a pattern; for images of a folder the folder with the pattern."""
    name = Path(pattern).name
    for path in map(Path, sorted(glob.glob(pattern, recursive=True))):
        resolved = path.resolve()
        if path.is_dir():
            if images_of(resolved / "*"):
                yield resolved / "*"
        elif is_image(path.name) and glob.has_magic(name):
            yield resolved.parent / name
        elif path.is_file():
            yield resolved


def kind_of(path: Path) -> str:
    """Return the kind of an input, a name of `KINDS`."""
    if glob.has_magic(path.name) and not path.is_file():
        return "image"
    name = path.name.removesuffix(".gz")
    return "image" if is_image(name) else "events" if name.endswith(".csv") else "text"


def images_of(path: Path) -> list[Path]:
    """Return the images that an input stands for, in the order of their names."""
    every = [path] if path.is_file() else path.parent.glob(path.name)
    return sorted(file for file in every if is_image(file.name) and file.is_file())


def target(path: Path, output: Path) -> Path:
    """Return the output of an input: its name, or its folder's, as JSON lines."""
    if kind_of(path) == "image":
        return output / f"{path.parent.name}.jsonl"
    name = path.name.removesuffix(".gz")
    ending = next((e for e in ENDINGS if name.endswith(e)), "")
    return output / f"{name.removesuffix(ending)}.jsonl{'.gz' if path.suffix == '.gz' else ''}"


def open_file(path: Path, mode: str, compressed: bool) -> IO[bytes]:
    """Open a file of bytes."""
    return gzip.open(path, mode, compresslevel=5) if compressed else path.open(mode)  # type: ignore


@dataclass
class Item:
    """A line, an image or a history.

    `value` is asked of the model, None where there is an `error`; `record` has the output's fields.
    """

    value: Any = None
    record: dict[str, Any] = field(default_factory=dict)
    error: str = ""


class InputKind:
    """A kind of inputs, and the question to a model about their items.

    `outputs` are those of the model's `signature` that an answer has. Of `window` items, which are
    read at a time, those of like size share a batch.
    """

    signature: ClassVar[str]
    outputs: ClassVar[tuple[str, ...]]
    window: ClassVar[int] = 4096

    @classmethod
    def of(cls, options: argparse.Namespace) -> Self:
        """Return the kind with the options of the command."""
        return cls()

    def items(self, path: Path) -> Iterator[Item]:
        """Yield the items of an input. Raises JobError where it cannot be read."""
        raise NotImplementedError

    def inputs(self, values: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
        """Return the inputs, of these names, that ask about values. Raises ValueError."""
        raise NotImplementedError

    @staticmethod
    def size(value: Any) -> int:
        """Return the size of a value, on which the time of its answer depends."""
        return len(value)


class Texts(InputKind):
    """Lines of a file, or the field "text" of JSON lines."""

    signature = "translate"
    outputs = ("translation", "score", "truncated", "unknown")

    def items(self, path: Path) -> Iterator[Item]:
        """Yield the lines of a file, .gz or not, without their ends and a byte-order mark."""
        is_json = path.name.removesuffix(".gz").endswith((".jsonl", ".json"))
        mark = codecs.BOM_UTF8
        with open_file(path, "rb", path.suffix == ".gz") as file:
            try:
                for line in file:
                    yield self._item(line.removeprefix(mark).rstrip(b"\r\n"), is_json)
                    mark = b""
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise JobError(f"{path} cannot be read: {error}") from None

    def _item(self, line: bytes, is_json: bool) -> Item:
        try:
            text = line.decode("utf-8")
            record = json.loads(text) if is_json else {}
        except UnicodeDecodeError as error:
            return Item(error=f"not UTF-8: {error.reason} at byte {error.start}")
        except (ValueError, RecursionError):
            return Item(error="not JSON")
        if not is_json:
            return Item(text)
        if not isinstance(record, dict) or not isinstance(record.get(_FIELD), str):
            return Item(error=f"not an object with a text {_FIELD!r}")
        answers = (*self.outputs, "model_version", "error")
        return Item(record[_FIELD], {x: y for x, y in record.items() if x not in answers})

    def inputs(self, values: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
        """Return the texts in UTF-8, with "?" for a lone surrogate."""
        return {"text": [text.encode("utf-8", "replace") for text in values]}


@dataclass(frozen=True)
class Events(InputKind):
    """Histories of a table, a row for each visit, in the order in which their ids come.

    `id` and `time` are the columns of ids and of times, `untold` tables whose notes are not made,
    `notes` those that no report has.
    """

    id: str = "id"
    time: str = "time"
    untold: list[Table] = field(default_factory=list, compare=False)
    notes: list[str] = field(default_factory=list, compare=False)

    signature = "predict"
    outputs = ("probability", "truncated")

    @classmethod
    def of(cls, options: argparse.Namespace) -> Self:
        """Return the kind with the columns that the command names."""
        return cls(options.id, options.time)

    def items(self, path: Path) -> Iterator[Item]:
        """Yield the histories of a table."""
        try:
            table = read_table(path, self.id, self.time)
        except (ValueError, EOFError) as error:
            raise JobError(str(error)) from None
        self.untold.append(table)
        for person, history in table.items():
            yield Item(history, {self.id: person})

    def inputs(self, values: Sequence[History], names: Sequence[str]) -> dict[str, Any]:
        """Return the columns of the model, without those that are unknown to it."""
        while self.untold:
            self.notes.extend(self.untold.pop().notes(names))
        return padded_columns([history_columns(each, names, ignore=True) for each in values])

    @staticmethod
    def size(value: History) -> int:
        """Return the number of events of a history."""
        return len(value[TIME])


class Images(InputKind):
    """Images of a folder, in the order of their names, each of which is read."""

    signature = "read"
    outputs = ("text", "score")
    window = 256  # files in memory

    def items(self, path: Path) -> Iterator[Item]:
        """Yield the images of a folder."""
        for file in images_of(path):
            record = {"image": file.name}
            try:
                yield Item(file.read_bytes(), record)
            except OSError as error:
                yield Item(None, record, error.strerror or "cannot be read")

    def inputs(self, values: Sequence[bytes], names: Sequence[str]) -> dict[str, Any]:
        """Return the files."""
        return {INPUT: values}


# By the configuration's key `source`.
KINDS: dict[str, type[InputKind]] = {"text": Texts, "image": Images, "events": Events}
