"""Events of a job: histories of tables, of which an outcome is predicted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from serving.batch import files
from serving.batch.kind import Item, outputs
from serving.client.histories import TIME, history_columns, padded_columns, read_table


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

    def answer(
        self, function: Any, values: Sequence[dict[str, list[str]]]
    ) -> list[float | ValueError]:
        """Return the probability after each history; what it has beyond the model is left out."""
        import tensorflow as tf

        inputs = list(function.structured_input_signature[1])
        found: list[Any] = []
        for history in values:
            try:
                found.append(history_columns(history, inputs, ignore=True))
            except ValueError as error:
                found.append(error)
        good = [one for one in found if isinstance(one, dict)]
        if not good:
            return found
        asked = {name: tf.constant(x, tf.float32) for name, x in padded_columns(good).items()}
        answers = outputs(function(**asked), "probability")
        said = iter([float(probability) for (probability,) in answers])
        return [next(said) if isinstance(one, dict) else one for one in found]

    def record(self, answer: float) -> dict[str, Any]:
        """Return what the output says of a probability."""
        return {"probability": round(answer, 6)}
