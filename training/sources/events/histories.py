"""Histories of events with an outcome, as arrays."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from training.data.hashing import number_of

MISSING = ("", "NA", "NaN", "nan")
MOST = 1e30  # of a number, so that differences fit into float32 as well


def input_name(name: str) -> str:
    """Return a name that an input of a served model can have."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"x{plain}" if not plain or plain[0].isdigit() or plain == "time" else plain


@dataclass(frozen=True)
class Schema:
    """The columns of a table.

    Attributes:
        columns: of each its categories, or None where it holds numbers.
        log: columns of numbers whose logarithm is taken.
    """

    columns: dict[str, list[str] | None]
    log: list[str] = field(default_factory=list)

    def inputs(self) -> list[str]:
        """Return the names of the numbers that are read: `column`, or `column_category`.

        Names can be served: underscores stand for all but letters and digits.
        """
        return [
            input_name(name if category is None else f"{name}_{category}")
            for name, categories in self.columns.items()
            for category in ([None] if categories is None else categories)
        ]

    def logged(self) -> np.ndarray:
        """Return of which inputs the logarithm is taken, boolean `(inputs,)`."""
        return np.array(
            [
                name in self.log
                for name, categories in self.columns.items()
                for _ in ([None] if categories is None else categories)
            ],
            bool,
        )


@dataclass(frozen=True)
class Histories:
    """Examples with a label: of each, what had happened up to then.

    Attributes:
        schema: of the columns.
        times: float64 `(events,)`, which never go back within a history.
        values: float32 `(events, inputs)`, NaN where missing.
        starts: int64 `(examples,)`, where each history begins.
        ends: int64 `(examples,)`, where it ends.
        labels: float32 `(examples,)`, 0 or 1.
        people: whose each history is; examples of one id are not independent.
        scores: published scores of the examples, by name.
    """

    schema: Schema
    times: np.ndarray
    values: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    labels: np.ndarray
    people: np.ndarray
    scores: dict[str, np.ndarray] = field(default_factory=dict)

    def select(self, indices: Sequence[int] | np.ndarray) -> Histories:
        """Return the examples at these positions."""
        rows = np.asarray(indices, np.int64)
        return replace(
            self,
            starts=self.starts[rows],
            ends=self.ends[rows],
            labels=self.labels[rows],
            people=self.people[rows],
            scores={name: values[rows] for name, values in self.scores.items()},
        )

    def inputs(self, example: int, most: int) -> dict[str, list[float]]:
        """Return the last events of an example: `time`, and each input, NaN where missing."""
        events = slice(max(self.starts[example], self.ends[example] - most), self.ends[example])
        columns = zip(self.schema.inputs(), self.values[events].T.tolist(), strict=True)
        return {"time": self.times[events].tolist(), **dict(columns)}

    def of_people(self, bucket: range, buckets: int) -> Histories:
        """Return the examples of those whose id falls into some of so many buckets."""
        chosen = [number_of(str(person)) % buckets in bucket for person in self.people]
        return self.select(np.flatnonzero(chosen))
