"""Files of a job, such as the images of a folder, each of which is read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from serving.batch import files
from serving.batch.kind import Function, Item, outputs
from serving.client.file_kinds import FileKind


@dataclass(frozen=True)
class Folder:
    """Files of a folder, in the order of their names."""

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
            record, name = {self.field: file.name}, file.name.encode(errors="replace")
            try:
                yield Item(name, self.kind.row(file), record)
            except OSError as error:
                yield Item(name, None, record, error.strerror or "cannot be read")
            except ValueError as error:
                yield Item(name, None, record, str(error))

    def size(self, value: Any) -> int:
        """Return how long a file's row is."""
        return len(value)

    def answer(
        self, function: Function, values: Sequence[Any]
    ) -> list[tuple[str, float] | ValueError]:
        """Return text and score of each file; where one is broken, the others are read without."""
        import tensorflow as tf

        inputs = {name: tf.constant(x) for name, x in self.kind.inputs(values).items()}
        try:
            return [
                (text.decode("utf-8", "replace"), float(score))
                for text, score in outputs(function(**inputs), "text", "score")
            ]
        except tf.errors.InvalidArgumentError as error:
            if len(values) == 1:
                return [ValueError(self._reason(error.message))]
        half = len(values) // 2
        return self.answer(function, values[:half]) + self.answer(function, values[half:])

    def record(self, answer: tuple[str, float]) -> dict[str, Any]:
        """Return what the output says of a text and its score."""
        text, score = answer
        return {"text": text, "score": round(score, 4)}

    def _reason(self, message: str) -> str:
        """Return what an export says of the one file it was given."""
        found = re.search(rf"{self.kind.input}\[0\] ([^\]\n']+)", message)
        return found[1].strip() if found else f"no {self.kind.name} that can be read"
