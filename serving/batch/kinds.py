"""Kinds of input of a job: texts, tables of events, and files of a folder such as images.

Each has the `signature` of its model, the `window` of items that are read at a time, of which those
of like size share a batch, and the `field` of the output that tells items apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from serving.batch import files
from serving.client.file_kinds import FileKind
from serving.client.histories import TIME, history_columns, padded_columns, read_table

Function = Callable[..., dict[str, Any]]  # a signature of a SavedModel: tensors by name
Fields = dict[str, Any]  # of an answer
_ANSWERS = frozenset(("translation", "score", "truncated", "model_version", "error"))


@dataclass
class Item:
    """A line, an image or a history.

    Attributes:
        value: the model's input; None if it has an error.
        record: the output's fields that are known before the answer, then all of them.
        error: why there is no answer; "" if there is one.
    """

    value: Any = None
    record: dict[str, Any] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True)
class Texts:
    """Lines of a file, or a field of JSON lines, such as those of another job."""

    field: str = "text"
    longest: int = 4000

    signature: ClassVar[str] = "translate"
    window: ClassVar[int] = 4096

    def items(self, path: Path) -> Iterator[Item]:
        """Yield the lines of a file."""
        key = self.field if files.is_json(path) else None
        for line in files.lines(path):
            try:
                text, record = files.text_of(line, key, self.longest)
            except ValueError as error:
                yield Item(error=str(error))
            else:
                yield Item(text, {x: y for x, y in record.items() if x not in _ANSWERS})

    size = staticmethod(len)

    def answer(self, function: Function, values: Sequence[str]) -> list[Fields]:
        """Return translation and score of each text, and whether it was too long."""
        import tensorflow as tf

        answers = function(text=tf.constant([text.encode() for text in values], tf.string))
        return [
            {
                "translation": text.decode("utf-8", "replace"),
                "score": round(float(score), 4),
                **({"truncated": True} if truncated else {}),
            }
            for text, score, truncated in _rows(answers, "translation", "score", "truncated")
        ]


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
            histories = read_table(path, self.field, self.time)
        except (ValueError, EOFError) as error:
            raise files.InputError(str(error)) from None
        for person, history in histories.items():
            yield Item(history, {self.field: person})

    @staticmethod
    def size(value: dict[str, list[str]]) -> int:
        """Return how many events a history has."""
        return len(value[TIME])

    def answer(
        self, function: Any, values: Sequence[dict[str, list[str]]]
    ) -> list[Fields | ValueError]:
        """Return the probability after each history; what it has beyond the model is left out."""
        import tensorflow as tf

        inputs = list(function.structured_input_signature[1])
        answers: list[Any] = []
        for history in values:
            try:
                answers.append(history_columns(history, inputs, ignore=True))
            except ValueError as error:
                answers.append(error)
        if good := [place for place, row in enumerate(answers) if isinstance(row, dict)]:
            columns = padded_columns([answers[place] for place in good])
            tensors = {name: tf.constant(x, tf.float32) for name, x in columns.items()}
            rows = _rows(function(**tensors), "probability")
            for place, (probability,) in zip(good, rows, strict=True):
                answers[place] = {"probability": round(float(probability), 6)}
        return answers


@dataclass(frozen=True)
class Folder:
    """Files of a folder, in the order of their names, each of which is read."""

    kind: FileKind

    signature: ClassVar[str] = "read"
    window: ClassVar[int] = 256  # files in memory

    @property
    def field(self) -> str:
        """The key of a file's name in the output."""
        return self.kind.name

    def items(self, path: Path) -> Iterator[Item]:
        """Yield the files of a folder."""
        for file in files.files_of(path):
            if not self.kind.is_name(file.name):
                continue
            record = {self.field: file.name}
            try:
                yield Item(self.kind.row(file), record)
            except OSError as error:
                yield Item(None, record, error.strerror or "cannot be read")
            except ValueError as error:
                yield Item(None, record, str(error))

    size = staticmethod(len)

    def answer(self, function: Function, values: Sequence[Any]) -> list[Fields | ValueError]:
        """Return text and score of each file; where one is broken, the others are read without."""
        import tensorflow as tf

        inputs = {name: tf.constant(x) for name, x in self.kind.inputs(values).items()}
        try:
            return [
                {"text": text.decode("utf-8", "replace"), "score": round(float(score), 4)}
                for text, score in _rows(function(**inputs), "text", "score")
            ]
        except tf.errors.InvalidArgumentError as error:
            if len(values) == 1:
                reason = re.search(rf"{self.kind.input}\[0\] ([^\]\n']+)", error.message)
                text = reason[1].strip() if reason else f"no {self.kind.name} that can be read"
                return [ValueError(text)]
        half = len(values) // 2
        return self.answer(function, values[:half]) + self.answer(function, values[half:])


Kind = Texts | Events | Folder


def _rows(answers: dict[str, Any], *names: str) -> Iterator[tuple[Any, ...]]:
    """Yield these outputs of a signature for each row."""
    return zip(*(answers[name].numpy() for name in names), strict=True)
