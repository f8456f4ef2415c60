"""Requests to a model of histories, and its answers: no connection, no state."""

from __future__ import annotations

import csv
import gzip
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.client import protobuf as messages
from serving.client.translation import Output, read_outputs

Message = Any
History = Mapping[str, Sequence[float | str | None]]
TIME = "time"
_MISSING = ("", "NA", "NaN", "nan")


@dataclass(frozen=True)
class Prediction:
    """How probable the outcome is, and the weight of each event; none of a model without any."""

    probability: float
    attention_weights: tuple[float, ...]


def read_table(path: str | Path, person: str, time: str) -> dict[str, dict[str, list[str]]]:
    """Return the history of each id in a table, CSV (.gz allowed) with a row for each visit.

    Args:
        path: of the table.
        person: the column of ids.
        time: the column of times, which is called "time" in the histories.

    Raises OSError, or ValueError where a column is missing.
    """
    path = Path(path)
    compressed = path.suffix == ".gz"
    with gzip.open(path, "rt", newline="") if compressed else path.open(newline="") as file:
        return parse_table(file, person, time, str(path))


def parse_table(
    lines: Iterable[str], person: str, time: str, name: str = "the table"
) -> dict[str, dict[str, list[str]]]:
    """Return the history of each id in the lines of a table, see `read_table`.

    Raises ValueError where a column is missing; `name` is what the message calls the table.
    """
    rows = csv.DictReader(lines)
    names = rows.fieldnames or []
    for column in (person, time):
        if column not in names:
            raise ValueError(f"{name} has no column {column!r}; it has {', '.join(names)}")
    found: dict[str, dict[str, list[str]]] = {}
    try:
        for row in rows:
            history = found.setdefault(row[person], {})
            for column in names:
                if column != person:
                    key = TIME if column == time else column
                    history.setdefault(key, []).append((row[column] or "").strip())
    except csv.Error as error:
        raise ValueError(f"{name} cannot be read: {error}") from None
    if not found:
        raise ValueError(f"{name} has no rows")
    return found


def history_columns(
    history: History, inputs: Iterable[str], ignore: bool = False
) -> dict[str, list[float]]:
    """Return the numbers of a history as the model's inputs.

    Args:
        history: "time" and other columns, each a list with a value for each event: a number, a
            category, or None (or "NA") where it is missing.
        inputs: the names of the model's inputs.
        ignore: whether columns that the model does not know are left out.

    Raises ValueError where a column or category is not known, columns differ in length, a time is
    missing, or times go back.
    """
    names = list(inputs)
    if TIME not in history:
        raise ValueError(f"a history has no {TIME}; it has {', '.join(history)}")
    count = len(history[TIME])
    found = {name: [math.nan] * count for name in names}
    for column, cells in history.items():
        if len(cells) != count:
            raise ValueError(f"a history has {count} times, and {len(cells)} values of {column}")
        plain = TIME if column == TIME else _input_name(column)
        categories = [name for name in names if name.startswith(f"{plain}_")]
        if plain in found:
            found[plain] = [_number(column, cell) for cell in cells]
        elif categories:
            _fill(found, column, plain, categories, cells)
        elif not ignore:
            raise ValueError(f"the model has no column {column!r}; it has {', '.join(names)}")
    times = found[TIME]
    for before, after in zip(times, [*times[1:], math.inf], strict=True):
        if math.isnan(before):
            raise ValueError("the time of an event is missing")
        if after < before:
            raise ValueError(f"the times of a history go back, from {before:g} to {after:g}")
    return found


def _fill(
    found: dict[str, list[float]],
    column: str,
    plain: str,
    categories: list[str],
    cells: Sequence[float | str | None],
) -> None:
    for number, cell in enumerate(cells):
        if cell is None or cell in _MISSING:
            continue
        wanted = _input_name(f"{column}_{cell}")
        if wanted not in categories:
            known = ", ".join(name.removeprefix(f"{plain}_") for name in categories)
            raise ValueError(f"{column} was never {cell!r} in training; known are {known}")
        for name in categories:
            found[name][number] = float(name == wanted)


def _number(column: str, cell: float | str | None) -> float:
    if cell is None or cell in _MISSING:
        return math.nan
    try:
        return float(cell)
    except ValueError:
        raise ValueError(f"expected {column} to be a number; received {cell!r}") from None


def _input_name(name: str) -> str:
    """Return what an export calls a column."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"x{plain}" if not plain or plain[0].isdigit() or plain == TIME else plain


def write_histories(histories: Sequence[dict[str, list[float]]]) -> dict[str, Message]:
    """The inputs of a request, `(B, T)` each; past the end of a history all is NaN."""
    longest = max((len(history[TIME]) for history in histories), default=0)
    return {
        name: messages.float_matrix(
            [history[name] + [math.nan] * (longest - len(history[name])) for history in histories],
            longest,
        )
        for name in histories[0]
    }


def read_predictions(response: Message, count: int) -> list[Prediction]:
    """Answers of the signature `predict`, one for each history; weights still have padding."""
    probabilities, *weights = read_outputs(
        response,
        count,
        probability=Output(messages.FLOAT, 1),
        **(
            {"attention_weights": Output(messages.FLOAT, 2)}
            if "attention_weights" in response.outputs
            else {}
        ),
    )
    rows = weights[0] if weights else [()] * count
    return [
        Prediction(probability, tuple(row))
        for probability, row in zip(probabilities, rows, strict=True)
    ]
