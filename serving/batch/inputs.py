"""The inputs of a job, and the places of their outputs: texts, tables of events, or images.

An input is a file of lines or rows, or images of a folder: `FOLDER/*.png` stands for those that
match. Each kind has the `signature` of its model, and the `window` of items that are read at a
time, of which those of like size share a batch.
"""

from __future__ import annotations

import codecs
import glob
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, ClassVar

from serving.api.histories import (
    TIME,
    History,
    Table,
    history_columns,
    padded_columns,
    read_table,
)
from serving.api.image_files import INPUT, is_image
from training.command.errors import UserError

ENDINGS = (".jsonl", ".json", ".txt", ".csv")
Function = Callable[..., dict[str, Any]]  # a signature of a SavedModel: tensors by name
Fields = dict[str, Any]  # of an answer
_ANSWERS = frozenset(("translation", "score", "truncated", "unknown", "model_version", "error"))
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
        paths = [Path(path) for path in sorted(glob.glob(pattern, recursive=True))]
        inputs = list(dict.fromkeys(_inputs(paths, Path(pattern).name)))
        if not inputs:
            raise JobError(f"no file matches {pattern}")
        for path in inputs:
            other = by_output.setdefault(target(path, output), path)
            if other != path:
                raise JobError(f"{other} and {path} would have the same output: rename one")
    if inside := [path for path in by_output.values() if path.is_relative_to(output.resolve())]:
        raise JobError(f"{inside[0]} is in the output: choose another --output")
    kinds = {kind_of(path): path for path in by_output.values()}
    if len(kinds) > 1:
        first, second = list(kinds.values())[:2]
        raise JobError(f"expected inputs of one kind. Received: {first} and {second}")
    return list(by_output.values())


def kind_of(path: Path) -> str:
    """Return the kind of an input: `text`, `events` or `image`."""
    if glob.has_magic(path.name) and not path.is_file():
        return "image"
    name = path.name.removesuffix(".gz")
    return "image" if is_image(name) else "events" if name.endswith(".csv") else "text"


def images_of(path: Path) -> list[Path]:
    """Return the images that an input stands for, in the order of their names."""
    every = [path] if path.is_file() else path.parent.glob(path.name)
    return sorted(file for file in every if is_image(file.name) and file.is_file())


def _inputs(paths: Sequence[Path], pattern: str) -> Iterator[Path]:
    """Yield the files; for images of a folder the folder with the pattern."""
    for path in paths:
        resolved = path.resolve()
        if path.is_dir():
            if images_of(resolved / "*"):
                yield resolved / "*"
        elif is_image(path.name) and glob.has_magic(pattern):
            yield resolved.parent / pattern
        elif path.is_file():
            yield resolved


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


def lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a text file, .gz or not, without their ends and a byte-order mark.

    Raises JobError if the file is not whole.
    """
    mark = codecs.BOM_UTF8
    with open_file(path, "rb", path.suffix == ".gz") as file:
        try:
            for line in file:
                yield line.removeprefix(mark).rstrip(b"\r\n")
                mark = b""
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise JobError(f"{path} cannot be read: {error}") from None


@dataclass
class Item:
    """A line, an image or a history.

    `value` is the model's input, None where there is an `error`; `record` the output's fields.
    """

    value: Any = None
    record: dict[str, Any] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True)
class Texts:
    """Lines of a file, or the field "text" of JSON lines."""

    signature: ClassVar[str] = "translate"
    window: ClassVar[int] = 4096
    size = staticmethod(len)

    def items(self, path: Path) -> Iterator[Item]:
        """Yield the lines of a file."""
        is_json = path.name.removesuffix(".gz").endswith((".jsonl", ".json"))
        for line in lines(path):
            try:
                text, record = _read_text(line, is_json)
            except ValueError as error:
                yield Item(error=str(error))
            else:
                yield Item(text, {x: y for x, y in record.items() if x not in _ANSWERS})

    def answer(self, function: Function, values: Sequence[str]) -> list[Fields]:
        """Return each text's translation and score, whether it was cut, and its unseen letters."""
        import tensorflow as tf

        written = [text.encode("utf-8", "replace") for text in values]
        answers = function(text=tf.constant(written, tf.string))
        answers.setdefault("unknown", tf.fill([len(values)], ""))  # models of others
        return [
            {
                "translation": text.decode("utf-8", "replace"),
                "score": round(float(score), 4),
                **({"truncated": True} if truncated else {}),
                **({"unknown": unknown.decode()} if unknown else {}),
            }
            for text, score, truncated, unknown in _rows(
                answers, "translation", "score", "truncated", "unknown"
            )
        ]


def _read_text(line: bytes, is_json: bool) -> tuple[str, dict[str, Any]]:
    """Return the text of a line and the JSON object that has it. Raises ValueError."""
    record: dict[str, Any] = {}
    try:
        text = line.decode("utf-8")
        if is_json:
            record = json.loads(text)
            if not isinstance(record, dict) or not isinstance(record.get(_FIELD), str):
                raise ValueError(f"not an object with a text {_FIELD!r}")
            text = record[_FIELD]
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason} at byte {error.start}") from None
    except (json.JSONDecodeError, RecursionError):
        raise ValueError("not JSON") from None
    return text, record


@dataclass(frozen=True)
class Events:
    """Histories of a table, a row for each visit, in the order in which their ids come.

    `id` and `time` are the columns of ids and of times, `untold` tables whose notes are not made,
    `notes` those that no report has.
    """

    id: str = "id"
    time: str = "time"
    untold: list[Table] = field(default_factory=list, compare=False)
    notes: list[str] = field(default_factory=list, compare=False)

    signature: ClassVar[str] = "predict"
    window: ClassVar[int] = 4096

    def items(self, path: Path) -> Iterator[Item]:
        """Yield the histories of a table."""
        try:
            table = read_table(path, self.id, self.time)
        except (ValueError, EOFError) as error:
            raise JobError(str(error)) from None
        self.untold.append(table)
        for person, history in table.items():
            yield Item(history, {self.id: person})

    @staticmethod
    def size(value: History) -> int:
        """Return how many events a history has."""
        return len(value[TIME])

    def answer(self, function: Any, values: Sequence[History]) -> list[Fields | ValueError]:
        """Return the probability after each history; columns unknown to the model are left out."""
        import tensorflow as tf

        inputs = list(function.structured_input_signature[1])
        while self.untold:
            self.notes.extend(self.untold.pop().notes(inputs))

        def ask(rows: Sequence[dict[str, list[float]]]) -> list[Fields]:
            columns = padded_columns(rows)
            answers = function(**{name: tf.constant(x, tf.float32) for name, x in columns.items()})
            return [
                {"probability": round(float(probability), 6)}
                | ({"truncated": True} if truncated else {})
                for probability, truncated in _rows(answers, "probability", "truncated")
            ]

        answers: list[Any] = []
        for history in values:
            try:
                answers.append(history_columns(history, inputs, ignore=True))
            except ValueError as error:
                answers.append(error)
        if good := [place for place, row in enumerate(answers) if isinstance(row, dict)]:
            found = _each(ask, [answers[place] for place in good], r"(expected [^\]\n]+)")
            for place, answer in zip(good, found, strict=True):
                answers[place] = answer
        return answers


@dataclass(frozen=True)
class Images:
    """Images of a folder, in the order of their names, each of which is read."""

    signature: ClassVar[str] = "read"
    window: ClassVar[int] = 256  # files in memory
    size = staticmethod(len)

    def items(self, path: Path) -> Iterator[Item]:
        """Yield the images of a folder."""
        for file in images_of(path):
            record = {"image": file.name}
            try:
                yield Item(file.read_bytes(), record)
            except OSError as error:
                yield Item(None, record, error.strerror or "cannot be read")

    def answer(self, function: Function, values: Sequence[bytes]) -> list[Fields | ValueError]:
        """Return the text and score of each image; a broken one is an error by itself."""
        import tensorflow as tf

        def ask(files: Sequence[bytes]) -> list[Fields]:
            answers = function(**{INPUT: tf.constant(files)})
            return [
                {"text": text.decode("utf-8", "replace"), "score": round(float(score), 4)}
                for text, score in _rows(answers, "text", "score")
            ]

        return _each(ask, values, rf"{INPUT}\[0\] ([^\]\n']+)")


def _each(
    ask: Callable[[Sequence[Any]], list[Fields]], values: Sequence[Any], reason: str
) -> list[Fields | ValueError]:
    """Return the answer to each value; a value that the graph refuses becomes its own error."""
    import tensorflow as tf

    try:
        return [*ask(values)]
    except tf.errors.InvalidArgumentError as error:
        if len(values) == 1:
            found = re.search(reason, error.message)
            return [ValueError(found[1].strip() if found else "cannot be read")]
    half = len(values) // 2
    return _each(ask, values[:half], reason) + _each(ask, values[half:], reason)


InputKind = Texts | Events | Images


def _rows(answers: dict[str, Any], *names: str) -> Iterator[tuple[Any, ...]]:
    """Yield these outputs of a signature for each row."""
    return zip(*(answers[name].numpy() for name in names), strict=True)
