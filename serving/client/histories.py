"""Histories as they are given: tables, and what a model takes of their columns."""

from __future__ import annotations

import csv
import gzip
import itertools
import math
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

History = Mapping[str, Sequence[float | str | None]]
TIME = "time"
MOST = 1e30  # of a number, so that differences fit into float32 as well
_MISSING = ("", "NA", "NaN", "nan")


def read_table(path: str | Path, person: str, time: str) -> dict[str, dict[str, list[str]]]:
    """Return the history of each id in a table, CSV (.gz allowed) with a row for each visit.

    Args:
        path: of the table.
        person: the column of ids.
        time: the column of times, which is called "time" in the histories.

    Raises OSError, or ValueError as `parse_table`.
    """
    path = Path(path)
    opened: Any = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", newline="", encoding="utf-8-sig") as file:
        try:
            return parse_table(file, person, time, str(path))
        except (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
            raise ValueError(f"{path} cannot be read: {error}") from None


def parse_table(
    lines: Iterable[str], person: str, time: str, name: str = "the table"
) -> dict[str, dict[str, list[str]]]:
    """Return the history of each id in the lines of a table, see `read_table`.

    Raises ValueError where a column is missing or there twice, where the ids are the times, or for
    a row of more or fewer cells; `name` is what the message calls the table.
    """
    rows = csv.reader(lines)
    found: dict[str, dict[str, list[str]]] = {}
    try:
        names = [column.strip() for column in next(rows, [])]
        _check_names(names, person, time, name)
        keys = [TIME if column == time else column for column in names]
        whose = names.index(person)
        for row in filter(None, rows):
            if len(row) != len(names):
                raise ValueError(
                    f"{name}, line {rows.line_num}: expected {len(names)} columns. "
                    f"Received: {len(row)}"
                )
            history = found.setdefault(row[whose].strip(), {})
            for key, cell in zip(keys, row, strict=True):
                if key != person:
                    history.setdefault(key, []).append(cell.strip())
    except csv.Error as error:
        raise ValueError(f"{name} cannot be read: {error}") from None
    if not found:
        raise ValueError(f"{name} has no rows")
    return found


def _check_names(names: Sequence[str], person: str, time: str, name: str) -> None:
    for column in (person, time):
        if column not in names:
            raise ValueError(f"{name} has no column {column!r}; it has {', '.join(names)}")
    if person == time:
        raise ValueError(f"expected a column of ids and one of times. Received: {time!r} for both")
    for column in names:
        if names.count(column) > 1:
            raise ValueError(f"{name} has two columns {column!r}")
    if time != TIME and TIME in names:
        raise ValueError(
            f"{name} has a column {TIME!r} beside {time!r}, which is its time: rename it, to "
            f"{_input_name(TIME)!r} where the model knows it"
        )


def history_columns(
    history: History, inputs: Iterable[str], ignore: bool = False
) -> dict[str, list[float]]:
    """Return the numbers of a history as the model's inputs.

    Args:
        history: "time" and other columns, each a list with a value for each event: a number, a
            category, or None (or "NA") where it is missing.
        inputs: the names of the model's inputs.
        ignore: whether columns that the model does not know are left out.

    Raises ValueError where a column or category is not known, columns differ in length, two are
    one to the model, a number is none or beyond 1e30, a time is missing, or times go back.
    """
    names = list(inputs)
    if TIME not in history:
        raise ValueError(f"a history has no {TIME}; it has {', '.join(history)}")
    count = len(history[TIME])
    found = {name: [math.nan] * count for name in names}
    read: dict[str, str] = {}
    for column, cells in history.items():
        if len(cells) != count:
            raise ValueError(f"a history has {count} times, and {len(cells)} values of {column}")
        plain = TIME if column == TIME else _input_name(column)
        categories = [name for name in names if name.startswith(f"{plain}_")]
        if before := read.get(plain):
            raise ValueError(f"columns {before!r} and {column!r} are both {plain} to the model")
        if plain in found or categories:
            read[plain] = column
        if plain in found:
            found[plain] = [_number(column, cell) for cell in cells]
        elif categories:
            _fill(found, column, plain, categories, cells)
        elif not ignore:
            raise ValueError(f"the model has no column {column!r}; it has {', '.join(names)}")
    if any(map(math.isnan, found[TIME])):
        raise ValueError("the time of an event is missing")
    for time, after in itertools.pairwise(found[TIME]):
        if after < time:
            raise ValueError(f"the times of a history go back, from {time:g} to {after:g}")
    return found


def padded_columns(histories: Sequence[Mapping[str, list[float]]]) -> dict[str, list[list[float]]]:
    """Return the inputs of a request, `(B, T)` each; past the end of a history all is NaN."""
    longest = max(len(history[TIME]) for history in histories)
    return {
        name: [history[name] + [math.nan] * (longest - len(history[name])) for history in histories]
        for name in histories[0]
    }


def _fill(
    found: dict[str, list[float]],
    column: str,
    plain: str,
    categories: list[str],
    cells: Sequence[float | str | None],
) -> None:
    for number, cell in enumerate(cells):
        if cell is None or cell in _MISSING or cell != cell:
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
        number = math.inf if "_" in str(cell) else float(cell)  # Python reads 1_000 as 1000
    except (ValueError, TypeError, OverflowError):
        number = math.inf
    if abs(number) > MOST:
        raise ValueError(f"expected {column} to be a number, -1e30 to 1e30. Received: {cell!r}")
    return number


def _input_name(name: str) -> str:
    """Return what an export calls a column."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"x{plain}" if not plain or plain[0].isdigit() or plain == TIME else plain
