"""Histories of events with an outcome, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from training.data.read._sentences import number_of
from training.data.rules import input_name


@dataclass(frozen=True)
class Schema:
    """The columns of a table."""

    columns: dict[str, list[str] | None]  # the categories of each column; None for numbers
    log: list[str] = field(default_factory=list)  # columns of numbers that become logarithms

    def inputs(self) -> list[str]:
        """Return the names of the model's inputs: see `input_name`.

        A column of numbers is one input; a column of categories has one input for each category.
        """
        return [
            input_name(name, category)
            for name, categories in self.columns.items()
            for category in ([None] if categories is None else categories)
        ]

    def logged(self) -> np.ndarray:
        """Return for each input whether its logarithm is taken, boolean `(inputs,)`."""
        widths = [1 if each is None else len(each) for each in self.columns.values()]
        return np.repeat([name in self.log for name in self.columns], widths)


@dataclass(frozen=True)
class Histories:
    """Examples: a label, and the events up to the time of the label."""

    schema: Schema  # the columns
    times: np.ndarray  # float64 `(events,)`, never decreasing within a history
    values: np.ndarray  # float32 `(events, inputs)`, NaN where missing
    starts: np.ndarray  # int64 `(examples,)`, the first event of each history
    ends: np.ndarray  # int64 `(examples,)`, the event after the last of each history
    labels: np.ndarray  # float32 `(examples,)`, 0 or 1
    people: np.ndarray  # `(examples,)`, the id of each; examples of one id are not independent

    @classmethod
    def of(cls, schema: Schema, times: list, values: list, examples: list[tuple]) -> Histories:
        """Return histories from the events, and from `(start, end, label, id)` of each example."""
        numbers = np.array(values, np.float32).reshape(len(times), -1)
        starts, ends, labels, people = map(np.array, zip(*examples, strict=True))
        labels = labels.astype(np.float32)
        return cls(schema, np.array(times, np.float64), numbers, starts, ends, labels, people)

    def select(self, indices: Sequence[int] | np.ndarray) -> Histories:
        """Return the examples at these positions."""
        rows = np.asarray(indices, np.int64)
        names = ("starts", "ends", "labels", "people")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    @property
    def sources(self) -> list[dict[str, list[float]]]:
        """The `inputs` of each example."""
        return [self.inputs(example) for example in range(len(self.labels))]

    def inputs(self, example: int) -> dict[str, list[float]]:
        """Return the events of an example: lists of `time` and of each input, NaN if missing."""
        events = slice(self.starts[example], self.ends[example])
        columns = zip(self.schema.inputs(), self.values[events].T.tolist(), strict=True)
        return {"time": self.times[events].tolist(), **dict(columns)}

    def last_known(self) -> np.ndarray:
        """Return each input's last known number up to each event, `(events, inputs)`, NaN if none.

        Only the rows of events that belong to the history of an example are meaningful.
        """
        events = np.arange(len(self.times))[:, None]
        begins = np.zeros_like(events)
        begins[self.starts, 0] = self.starts
        last = np.maximum.accumulate(np.where(np.isnan(self.values), -1, events))
        known = last >= np.maximum.accumulate(begins)
        return np.where(known, np.take_along_axis(self.values, last, axis=0), np.nan)

    def of_people(self, bucket: range, buckets: int) -> Histories:
        """Return the examples whose id, hashed into `buckets` buckets, falls into `bucket`."""
        inside = [number_of(str(person)) % buckets in bucket for person in self.people]
        return self.select(np.flatnonzero(inside))
