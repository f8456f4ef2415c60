"""Histories of events with an outcome, as arrays."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from training.data.pair_files import number_of

MOST = 1e30  # of a number, so that differences fit into float32 as well
# In lower case: cells that are missing in any column, and in a column of numbers.
MISSING = frozenset({"", "na", "nan", "n/a", "#n/a", "<na>", "null"})
PLACEHOLDERS = MISSING | {
    *("-", "--", "–", "—", "?", ".", "..", "*", "n.a.", "n.d.", "nd", "none", "nil"),
    *("-nan", "#na", "missing", "unknown", "not available", "not done", "pending"),
}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_WHOLE = re.compile(r"([+-]?\d+)\.0*", re.ASCII)


def parse_number(cell: str) -> float | None:
    """Return the number in a cell, from -1e30 to 1e30, None where there is none.

    `serving.api.histories` has the same rule, and the same names of inputs.
    """
    number = float(cell) if _NUMBER.fullmatch(cell) else math.inf
    return number if abs(number) <= MOST else None


def category_of(cell: str) -> str:
    """Return a category without its form: in NFC, and 1 for 1.0, which pandas makes of gaps."""
    whole = _WHOLE.fullmatch(cell)
    return unicodedata.normalize("NFC", whole[1] if whole else cell)


def input_name(column: str, category: str | None = None) -> str:
    """Return the name of a served model's input: `column`, or `column__category`.

    In a column's name, an underscore stands for spaces, points, hyphens and slashes. In a
    category, it stands for a space alone. All other characters but ASCII letters and digits are
    written as `u` and the hexadecimal code, so that no two categories have one name.
    """
    name = re.sub(r"[ ._/-]+", "_", column).strip("_")
    name = "".join(c if c.isascii() and (c.isalnum() or c == "_") else f"u{ord(c):x}" for c in name)
    if not name or name[0].isdigit() or name == "time":
        name = f"x{name}"
    if category is None:
        return name
    plain = (
        c if c.isascii() and c.isalnum() else "_" if c == " " else f"_u{ord(c):x}_"
        for c in category
    )
    return f"{name}__{''.join(plain)}"


@dataclass(frozen=True)
class Schema:
    """The columns of a table."""

    columns: dict[str, list[str] | None]  # of each its categories, or None where it holds numbers
    log: list[str] = field(default_factory=list)  # columns of numbers whose logarithm is taken

    def inputs(self) -> list[str]:
        """Return the names of the numbers that are read: see `input_name`."""
        return [
            input_name(name, category)
            for name, categories in self.columns.items()
            for category in ([None] if categories is None else categories)
        ]

    def logged(self) -> np.ndarray:
        """Return of which inputs the logarithm is taken, boolean `(inputs,)`."""
        widths = [1 if each is None else len(each) for each in self.columns.values()]
        return np.repeat([name in self.log for name in self.columns], widths)


@dataclass(frozen=True)
class Histories:
    """Examples with a label: of each, what had happened up to then."""

    schema: Schema  # of the columns
    times: np.ndarray  # float64 `(events,)`, which never go back within a history
    values: np.ndarray  # float32 `(events, inputs)`, NaN where missing
    starts: np.ndarray  # int64 `(examples,)`, where each history begins
    ends: np.ndarray  # int64 `(examples,)`, where it ends
    labels: np.ndarray  # float32 `(examples,)`, 0 or 1
    people: np.ndarray  # whose each history is; examples of one id are not independent

    @classmethod
    def of(cls, schema: Schema, times: list, values: list, examples: list[tuple]) -> Histories:
        """Make them of all events, and of examples: start, end, label and person of each."""
        numbers = np.array(values, np.float32).reshape(len(times), -1)
        starts, ends, labels, people = map(np.array, zip(*examples, strict=True))
        labels = labels.astype(np.float32)
        return cls(schema, np.array(times, np.float64), numbers, starts, ends, labels, people)

    def select(self, indices: Sequence[int] | np.ndarray) -> Histories:
        """Return the examples at these positions."""
        rows = np.asarray(indices, np.int64)
        return replace(
            self,
            starts=self.starts[rows],
            ends=self.ends[rows],
            labels=self.labels[rows],
            people=self.people[rows],
        )

    def inputs(self, example: int) -> dict[str, list[float]]:
        """Return the events of an example: `time`, and each input, NaN where missing."""
        events = slice(self.starts[example], self.ends[example])
        columns = zip(self.schema.inputs(), self.values[events].T.tolist(), strict=True)
        return {"time": self.times[events].tolist(), **dict(columns)}

    def last_known(self) -> np.ndarray:
        """Return the last number of each input up to each event, `(events, inputs)`, NaN for none.

        Events are of the histories of some example.
        """
        events = np.arange(len(self.times))[:, None]
        begins = np.zeros_like(events)
        begins[self.starts, 0] = self.starts
        last = np.maximum.accumulate(np.where(np.isnan(self.values), -1, events))
        known = last >= np.maximum.accumulate(begins)
        return np.where(known, np.take_along_axis(self.values, last, axis=0), np.nan)

    def of_people(self, bucket: range, buckets: int) -> Histories:
        """Return the examples of those whose id falls into some of so many buckets."""
        inside = [number_of(str(person)) % buckets in bucket for person in self.people]
        return self.select(np.flatnonzero(inside))
