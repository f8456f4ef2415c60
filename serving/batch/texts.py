"""Texts of a job: lines of files, or a field of JSON lines, which are translated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from serving.batch import files
from serving.batch.kind import Function, Item, outputs

_ANSWERS = frozenset(("translation", "score", "truncated", "model_version", "error"))


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
                yield Item(line, error=str(error))
            else:
                yield Item(line, text, {x: y for x, y in record.items() if x not in _ANSWERS})

    def size(self, value: str) -> int:
        """Return how long a text is."""
        return len(value)

    def answer(self, function: Function, values: Sequence[str]) -> list[tuple[str, float, bool]]:
        """Return translation, score, and whether the text was too long, of each text."""
        import tensorflow as tf

        found = function(text=tf.constant([text.encode() for text in values], tf.string))
        return [
            (text.decode("utf-8", "replace"), float(score), bool(truncated))
            for text, score, truncated in outputs(found, "translation", "score", "truncated")
        ]

    def record(self, answer: tuple[str, float, bool]) -> dict[str, Any]:
        """Return what the output says of a translation, its score, and whether it was too long."""
        translation, score, truncated = answer
        said: dict[str, Any] = {"translation": translation, "score": round(score, 4)}
        return {**said, "truncated": True} if truncated else said
