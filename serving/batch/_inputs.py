"""The inputs of a job (texts, tables of events or images), and the paths of their outputs."""

from __future__ import annotations

import codecs
import glob
import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, ClassVar

from serving.api._histories import TIME, Table, history_columns, padded_columns, read_table
from serving.api._image_files import INPUT, is_image
from training.command.errors import UserError

_ENDINGS = (".jsonl", ".txt", ".csv")  # endings of inputs that outputs drop


def find(patterns: Sequence[str], output: Path) -> list[list[Path]]:
    """Return the inputs that the patterns match, in the order of their outputs.

    An input is a list of files: one file of lines or rows, or the images of a folder.

    Raises UserError if a pattern matches nothing, if two inputs would have the same output, or if
    the inputs are of several kinds.
    """
    inputs: dict[Path, set[Path]] = {}  # by output
    kinds: dict[str, Path] = {}
    for pattern in patterns:
        paths = [Path(path).resolve() for path in glob.glob(pattern, recursive=True)]
        files = [file for path in paths for file in ([path] if path.is_file() else _images(path))]
        if not files:
            raise UserError(f"no file matches {pattern}")
        for path in files:
            if path.is_relative_to(output.resolve()):
                raise UserError(f"{path} is in the output: choose another --output")
            inputs.setdefault(target(path, output), set()).add(path)
            kinds.setdefault(kind_of(path), path)
    if len(kinds) > 1:
        first, second, *_ = kinds.values()
        raise UserError(f"{first} and {second} are of two kinds. Start a job for each kind")
    for each in inputs.values():
        first, *others = sorted(each)
        for other in others:
            if "image" not in kinds or other.parent != first.parent:
                raise UserError(f"{first} and {other} would have the same output: rename one")
    return [sorted(inputs[path]) for path in sorted(inputs)]


def _images(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*") if is_image(path.name) and path.is_file()]


def kind_of(path: Path) -> str:
    """Return the kind of a file, a key of `KINDS`."""
    name = path.name.removesuffix(".gz")
    return "image" if is_image(name) else "events" if name.endswith(".csv") else "text"


def target(path: Path, output: Path) -> Path:
    """Return the output of an input: JSON lines, named after the file or the images' folder."""
    if kind_of(path) == "image":
        return output / f"{path.parent.name}.jsonl"
    name = path.name.removesuffix(".gz")
    ending = next((ending for ending in _ENDINGS if name.endswith(ending)), "")
    return output / f"{name.removesuffix(ending)}.jsonl{'.gz' if path.suffix == '.gz' else ''}"


def open_file(path: Path, mode: str, compressed: bool) -> IO[bytes]:
    """Open a file of bytes, through gzip if `compressed`."""
    return gzip.open(path, mode, compresslevel=5) if compressed else path.open(mode)  # type: ignore


@dataclass
class Item:
    """A line, an image or a history.

    Attributes:
        value: what the model gets; None if there is an `error`.
        size: decides which items share a batch; larger items take longer.
        record: the fields of the item in the output.
        error: why the item could not be read or answered, "" without an error.
    """

    value: Any = None
    size: int = 0
    record: dict[str, Any] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True)
class InputKind:
    """A kind of inputs, and how to send their items to a model.

    Attributes:
        id, time: a table's columns of ids and of times.
        notes: a note for each column of a table that the model reads differently than written.
        signature: the signature that answers the items.
        input: the signature's input, if it has one only.
        outputs: the signature's outputs that an answer has.
        window: how many items are read at a time; items of similar size share a batch.
    """

    id: str = "id"
    time: str = "time"
    notes: list[str] = field(default_factory=list, compare=False)

    signature: ClassVar[str]
    input: ClassVar[str]
    outputs: ClassVar[tuple[str, ...]]
    window: ClassVar[int] = 4096

    def items(self, files: Sequence[Path]) -> Iterator[Item]:
        """Yield the items of an input. Raises UserError if a file cannot be read."""
        raise NotImplementedError

    def inputs(self, values: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
        """Return the signature's inputs, called `names`, for items' values. Raises ValueError."""
        return {self.input: values}


class Texts(InputKind):
    """Lines of a file (.gz allowed), or texts of JSON lines, whose other fields are kept."""

    signature, input = "translate", "text"
    outputs = ("translation", "score", "truncated", "unknown")

    def items(self, files: Sequence[Path]) -> Iterator[Item]:
        """Yield the lines of a file, without line ends and byte-order mark."""
        (path,), mark = files, codecs.BOM_UTF8
        is_json = path.name.removesuffix(".gz").endswith(".jsonl")
        with open_file(path, "rb", path.suffix == ".gz") as file:
            try:
                for line in file:
                    try:
                        text = line.removeprefix(mark).rstrip(b"\r\n").decode("utf-8")
                    except UnicodeDecodeError as error:
                        yield Item(error=f"not UTF-8: {error.reason} at byte {error.start}")
                    else:
                        yield self._object(text) if is_json else Item(text, len(text))
                    mark = b""
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise UserError(f"{path} cannot be read: {error}") from None

    def _object(self, line: str) -> Item:
        """Return the item of a JSON line."""
        try:
            record = json.loads(line)
            text = record["text"]
        except (ValueError, RecursionError, KeyError, TypeError):
            text = None
        if not isinstance(text, str):
            return Item(error='not a JSON object with a "text"')
        answers = {*self.outputs, "model_version", "error"}
        kept = {name: value for name, value in record.items() if name not in answers}
        text = text.encode("utf-8", "replace").decode()  # a lone surrogate
        return Item(text, len(text), kept)


@dataclass(frozen=True)
class Events(InputKind):
    """Histories of a table with a row for each visit, in the order of their ids' first rows.

    `untold` has the tables whose notes are not made yet: notes depend on the model's columns.
    """

    untold: list[Table] = field(default_factory=list, compare=False)

    signature = "predict"
    outputs = ("probability", "truncated")

    def items(self, files: Sequence[Path]) -> Iterator[Item]:
        """Yield the histories of a table."""
        (path,) = files
        try:
            table = read_table(path, self.id, self.time)
        except ValueError as error:
            raise UserError(str(error)) from None
        self.untold.append(table)
        for person, history in table.items():
            yield Item(history, len(history[TIME]), {self.id: person})

    def inputs(self, values: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
        """Return the model's columns, each `(B, T)`; unknown columns of the table are skipped."""
        while self.untold:
            self.notes.extend(self.untold.pop().notes(names))
        return padded_columns([history_columns(each, names, ignore=True) for each in values])


class Images(InputKind):
    """Images of a folder in the order of their names. The model reads the text in each."""

    signature, input = "read", INPUT
    outputs = ("text", "score")
    window = 256  # files in memory

    def items(self, files: Sequence[Path]) -> Iterator[Item]:
        """Yield the images of a folder."""
        for path in files:
            record = {"image": path.name}
            try:
                contents = path.read_bytes()
            except OSError as error:
                yield Item(record=record, error=error.strerror or "cannot be read")
            else:
                yield Item(contents, len(contents), record)


# By the configuration's key `source`.
KINDS: dict[str, type[InputKind]] = {"text": Texts, "image": Images, "events": Events}
