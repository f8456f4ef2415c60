"""Reads tables of histories, and converts their columns to the inputs of a model."""

from __future__ import annotations

import gzip
import itertools
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from serving.api._arguments import shown
from training.data.rules import (
    MISSING,
    MOST_NUMBER,
    PLACEHOLDERS,
    SILENT,
    TIME,
    category_in,
    category_of,
    encoding_hint,
    input_name,
    number_hint,
    parse_number,
    table_notes,
    table_rows,
)
from training.data.separators import commas_hint

History = Mapping[str, Sequence[float | str | None]]

_NO_FILE = "the table"  # the name of a table that is no file


class Table(dict[str, dict[str, list[str]]]):
    """The history of each id in a table: its cells by column.

    `lines` has the line numbers of each id's events. `name` is the table's name in messages.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name, self.lines = name, dict[str, list[int]]()

    def notes(self, inputs: Iterable[str]) -> Iterator[str]:
        """Yield a note for each column whose cells a model reads differently than they are written.

        `inputs` are the names of the model's inputs. `training.evaluate` prints the same notes.
        """
        names, (history, *_) = [*inputs], self.values()
        missing: dict[str, list[tuple[int, str]]] = {}
        for column in history:
            plain = column if column in names else input_name(column)
            is_number = plain in names
            if not is_number and not any(name.startswith(f"{plain}__") for name in names):
                continue
            if plain != column and plain in history:
                yield f"{self.name}: {column!r} is not read beside {plain!r}: both are {plain}"
            elif column != TIME:
                words = PLACEHOLDERS if is_number else MISSING
                for person, lines in self.lines.items():
                    for line, cell in zip(lines, self[person][column], strict=True):
                        if cell.lower() in words and cell not in SILENT:
                            missing.setdefault(column, []).append((line, cell))
        cells_of_time = itertools.chain.from_iterable(each[TIME] for each in self.values())
        times = [time for cell in cells_of_time if (time := parse_number(cell)) is not None]
        yield from table_notes(self.name, self, missing, times)


def read_table(path: str | Path, person: str, time: str) -> Table:
    """Return the history of each id in a CSV file (.gz allowed) with a row for each visit.

    `person` is the column of ids, `time` the column of times. The histories call the column of
    times "time". Raises OSError, or ValueError as `parse_table` does.
    """
    path = Path(path)
    opened: Any = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", newline="", encoding="utf-8-sig") as file:
        try:
            return parse_table(file, person, time, str(path))
        except UnicodeDecodeError as error:
            hint = encoding_hint(error.object)
            raise ValueError(f"{path} is not UTF-8 text{hint}") from None
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{path} cannot be read: {error}") from None


def parse_table(lines: Iterable[str], person: str, time: str, name: str = _NO_FILE) -> Table:
    """Return the history of each id in the lines of a table: see `read_table`.

    Blank rows and columns without a name are skipped. `name` is the table's name in messages. If
    another column than `time` is called "time", the histories call it "xtime", as the model does.

    Raises ValueError if a column is missing or occurs twice, if `person` and `time` are the same
    column, or for a row with more or fewer cells or without an id.
    """
    rows, histories = table_rows(lines, name), Table(name)
    _, names = next(rows, (0, []))
    _check_names(names, person, time, name)
    other = {TIME: input_name(TIME), time: TIME, person: ""}
    keys = [other.get(column, column) for column in names]
    whose = names.index(person)
    for line, cells in rows:
        if cells[whose].lower() in MISSING:
            raise ValueError(f"{name}, line {line}: the {person}, whose row it is, is missing")
        history = histories.setdefault(cells[whose], {})
        histories.lines.setdefault(cells[whose], []).append(line)
        for key, cell in zip(keys, cells, strict=True):
            if key:
                history.setdefault(key, []).append(cell)
    if not histories:
        raise ValueError(f"{name} has no rows")
    return histories


def _check_names(names: Sequence[str], person: str, time: str, name: str) -> None:
    """Raise ValueError if the columns of a table lack one, or have two of the same name."""
    for column in (person, time):
        if column not in names:
            path = "" if name == _NO_FILE else name
            commas = commas_hint(names[0], path) if len(names) == 1 else ""
            raise ValueError(f"{name} has no column {column!r}; it has {', '.join(names)}{commas}")
    if person == time:
        raise ValueError(f"ids and times need a column each, but {time!r} is given for both")
    for column in filter(None, names):
        if names.count(column) + (column == input_name(TIME) and time != TIME in names) > 1:
            raise ValueError(f"{name} has two columns {column!r}")


def history_columns(
    history: History, inputs: Iterable[str], ignore: bool = False
) -> dict[str, list[float]]:
    """Return the model's inputs for a history: lists of T numbers by name.

    Args:
        history: "time" and other columns. Each is a list with one value for each of T events: a
            number, a category, or None (or "NA") for a missing value.
        inputs: the names of the model's inputs.
        ignore: whether to skip columns that the model does not know, and columns that have the name
            of an input only after conversion if another column has the very name.

    Raises TypeError for anything but such a dict. Raises ValueError if a column that the model
    reads is absent, a column or category is unknown, columns differ in length, two columns are the
    same input, a cell is not a number or beyond 1e30, a time is missing, or times decrease.
    """
    names = list(inputs)
    _check_history(history)
    if TIME not in history:
        raise ValueError(f"a history has no {TIME}; it has {', '.join(history)}")
    count = len(history[TIME])
    numbers: dict[str, list[float]] = {}
    columns: dict[str, str] = {}  # columns by their names in the model
    for column, cells in history.items():
        if len(cells) != count:
            raise ValueError(f"a history has {count} times, and {len(cells)} values of {column}")
        plain = column if column in names else input_name(column)
        categories = [name for name in names if name.startswith(f"{plain}__")]
        if ignore and plain != column and plain in history:
            continue
        if plain in columns:
            raise ValueError(
                f"columns {columns[plain]!r} and {column!r} are both {plain} to the model"
            )
        if plain in names:
            numbers[plain] = [_number(column, cell) for cell in cells]
        elif categories:
            numbers |= _categories(column, categories, cells)
        elif ignore:
            continue
        else:
            raise ValueError(f"the model has no column {column!r}; it has {', '.join(names)}")
        columns[plain] = column
    if any(map(math.isnan, numbers[TIME])):
        raise ValueError("the time of an event is missing")
    for time, after in itertools.pairwise(numbers[TIME]):
        if after < time:
            back = f"go back, from {time:g} to {after:g}"
            raise ValueError(f"the times of a history {back}: sort its events by time")
    if absent := dict.fromkeys(name.partition("__")[0] for name in names if name not in numbers):
        raise ValueError(
            f"a history has no {', '.join(absent)}, which the model reads; it has "
            f"{', '.join(history)}"
        )
    return {name: numbers[name] for name in names}


def _check_history(history: Any) -> None:
    """Raise TypeError for anything but a dict of columns."""
    if not isinstance(history, Mapping):
        raise TypeError(
            f"expected a history as a dict of columns, {TIME!r} among them. Received: "
            f"{shown(history)}"
        )
    for column, cells in history.items():
        if not isinstance(column, str):
            raise TypeError(f"expected columns that have names. Received: {shown(column)}")
        if isinstance(cells, str | bytes | Mapping) or not hasattr(cells, "__len__"):
            raise TypeError(
                f"expected a value for each event in {column}, a list. Received: {shown(cells)}"
            )


def padded_columns(histories: Sequence[Mapping[str, list[float]]]) -> dict[str, list[list[float]]]:
    """Return the inputs of a request, each `(B, T)`; NaN pads shorter histories."""
    longest = max(len(history[TIME]) for history in histories)
    return {
        name: [history[name] + [math.nan] * (longest - len(history[name])) for history in histories]
        for name in histories[0]
    }


def _categories(
    column: str, names: list[str], cells: Sequence[float | str | None]
) -> dict[str, list[float]]:
    """Return the inputs of a column of categories: 1 for the event's category, else 0, or NaN."""
    numbers: dict[str, list[float]] = {name: [] for name in names}
    known = {category_in(name): name for name in names}
    alike = {category_of(category): name for category, name in known.items()}
    for cell in cells:
        # NaN differs from itself. Compared last: a comparison with pandas' NA has no truth value.
        missing = cell is None or str(cell).strip().lower() in MISSING or cell != cell
        text = str(cell).strip()
        found = known.get(text) or alike.get(category_of(text))
        if not missing and found is None:
            readable = ", ".join(known)
            raise ValueError(f"{column} was never {cell!r} in training; known are {readable}")
        for name in names:
            numbers[name].append(math.nan if missing else float(name == found))
    return numbers


def _number(column: str, cell: float | str | None) -> float:
    """Return a cell as a number, NaN if it is missing. Raises ValueError."""
    text = cell.strip() if isinstance(cell, str) else ""
    if cell is None or (isinstance(cell, str) and text.lower() in PLACEHOLDERS):
        return math.nan
    number: float | None = None
    if isinstance(cell, str):
        number = parse_number(text)
    elif not isinstance(cell, bytes):
        with suppress(ValueError, TypeError, OverflowError):
            number = float(cell)
    if number is None or abs(number) > MOST_NUMBER:
        wanted = f"a number, -1e30 to 1e30{number_hint(text)}"
        raise ValueError(f"{column} needs {wanted}, but it is {cell!r}")
    return number
