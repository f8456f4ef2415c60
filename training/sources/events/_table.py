"""Reads histories from a CSV table (.gz allowed) with a small TOML file next to it.

A table of visits has a row for each visit and a column for each value:

    id = "patient"
    time = "day"                 # a number, in any unit
    outcome = "died"             # 0 or 1; a row without an outcome is only history
    columns = ["bili", "sex"]    # default: all other columns
    log = ["bili"]               # columns whose logarithm is taken, if any
    categories = ["stage"]       # columns of categories that look like numbers, if any

A table of events has a row for each value, with one column for names and one for values:

    id = "patient"
    time = "day"
    name = "test"
    value = "result"
    outcome = "died"             # one of the names; its value is 0 or 1

Each outcome is an example: all events of the id up to the outcome's time, and whether it came true.
In a column of numbers, cells that mean "missing" are counted and printed; other cells that are not
numbers are rejected with an error.
"""

from __future__ import annotations

import io
import itertools
import math
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import NamedTuple

from training.command.progress import print_note
from training.data import rules
from training.data.read._files import read_text
from training.data.read._specs import CorpusError
from training.data.rules import MISSING, PLACEHOLDERS, SILENT, category_of, input_name
from training.data.separators import commas_hint
from training.sources.events._histories import Histories, Schema

_EXAMPLE = 'id = "patient", time = "day" and outcome = "died", a line each'
MOST_CATEGORIES = 50  # in a column that `categories` does not list
_LIKE_NUMBER = re.compile(r"[-+<>=≤≥~]*\s*[.,]?\d[\d.,_' ]*(e[-+]?\d+)?\s*%?", re.IGNORECASE)
Rows = list[tuple[int, dict[str, str]]]  # line number and cells by column, for each row


@dataclass(frozen=True)
class About:
    """The content of a TOML file: the roles of a table's columns."""

    table: Path
    file: Path
    id: str
    time: str
    outcome: str
    name: str = ""  # like `value`, only in a table of events
    value: str = ""
    columns: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    categories: list[str] = field(default_factory=list)

    def error_at(self, line: int, message: str) -> CorpusError:
        """Return a CorpusError about a line of the table."""
        return CorpusError(f"{self.table}, line {line}: {message}")


class _Cell(NamedTuple):
    line: int
    text: str


class _Event(NamedTuple):
    """A row of a table of visits, or all rows of an id's time in a table of events."""

    line: int
    time: float
    cells: dict[str, _Cell]

    def cell(self, name: str) -> _Cell:
        return self.cells.get(name, _Cell(self.line, ""))


def read_table(path: Path, schema: Schema | None = None) -> Histories:
    """Read a table and the TOML file next to it.

    Args:
        path: the table.
        schema: the columns that a run was trained on, which the table must have.

    Raises CorpusError, with the number of the line, if the table cannot be read.
    """
    about = _read_about(path)
    header, rows = _read_rows(path)
    _check_columns(about, header, rows, schema)
    people = _events_of(about, rows)
    schema = schema or _schema_of(about, people)
    names = schema.inputs()
    if twice := [name for name in names if names.count(name) > 1]:
        raise CorpusError(f"{path} has two columns of the name {twice[0]}")
    missing: dict[str, list[_Cell]] = {}
    times: list[float] = []
    values, examples = [], []
    for person, history in people.items():
        start = len(times)
        for event in history:
            times.append(event.time)
            values.append(list(_numbers(about, event, schema, missing)))
            line, outcome = event.cell(about.outcome)
            if outcome.lower() in MISSING:
                continue
            if outcome not in ("0", "1", "0.0", "1.0"):
                wanted = "0, 1 (it came true) or an empty cell"
                raise about.error_at(line, f"{about.outcome} needs {wanted}, but it is {outcome}")
            examples.append((start, len(times), float(outcome), person))
    if not examples:
        raise CorpusError(f"{path} has no row with the outcome {about.outcome!r}")
    for note in rules.table_notes(str(path), people, missing, times):
        print_note(note, error=True)
    return Histories.of(schema, times, values, examples)


def _read_about(path: Path) -> About:
    file = path.with_name(path.name.removesuffix(".gz")).with_suffix(".toml")
    if not file.is_file():
        raise CorpusError(f"{path} needs {file} beside it, which names its columns: {_EXAMPLE}")
    try:
        about = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CorpusError(f"cannot read {file}: {error}: expected {_EXAMPLE}") from None
    keys = [each.name for each in fields(About)][2:]
    lists = keys[-3:]
    if unknown := [key for key in about if key not in keys]:
        raise CorpusError(f"{file}: unknown key {unknown[0]!r}; there are {', '.join(keys)}")
    needed = keys[:5] if {"name", "value"} & {*about} else keys[:3]
    if missing := [key for key in needed if key not in about]:
        raise CorpusError(f"{file} expected the key {missing[0]}, which names a column")
    for key, value in about.items():
        texts = value if isinstance(value, list) else [value]
        if isinstance(value, list) != (key in lists) or not all(isinstance(t, str) for t in texts):
            wanted = "a list of names" if key in lists else "a name"
            raise CorpusError(f"{file}: {key} needs {wanted}, but it is {value}")
    # In a table of events, the outcome is a name in the rows, not a column.
    named = [about[key] for key in needed if key != "outcome" or "name" not in about]
    named += [] if "name" in about else about.get("columns", [])
    if twice := [name for name in named if named.count(name) > 1]:
        raise CorpusError(f"{file} names the column {twice[0]!r} twice: each has one role")
    return About(path, file, **about)


def _read_rows(path: Path) -> tuple[list[str], Rows]:
    """Return the named columns, and the rows that are not blank, with their line numbers."""
    rows = rules.table_rows(io.StringIO(read_text(path), newline=""), str(path))
    header: list[str] = []
    try:
        _, header = next(rows, (0, []))
        if twice := [name for name in header if name and header.count(name) > 1]:
            raise CorpusError(f"{path} has two columns {twice[0]!r}")
        named = [
            (line, {name: cell for name, cell in zip(header, cells, strict=True) if name})
            for line, cells in rows
        ]
    except ValueError as error:
        raise CorpusError(f"{error}{_hint(header, path)}") from None
    return [*filter(None, header)], named


def _hint(header: list[str], path: Path) -> str:
    """Return the end of an error on a table: its separator, if it has a single column."""
    return commas_hint(header[0], str(path)) if len(header) == 1 else ""


def _check_columns(about: About, header: list[str], rows: Rows, schema: Schema | None) -> None:
    """Raise a CorpusError if a column, or a name in a table of events, is missing."""
    path, outcome = about.table, about.outcome
    for key in ("id", "time", *(("name", "value") if about.name else ("outcome",))):
        if (column := getattr(about, key)) not in header:
            raise CorpusError(
                f"{path} has no column {column!r}, the {key} of {about.file}; it has "
                f"{', '.join(header)}{_hint(header, path)}"
            )
    names = {row[about.name] for _, row in rows} if about.name else {*header}
    columns = list(schema.columns) if schema else about.columns or [*names - {outcome}]
    missing = ", ".join(repr(name) for name in columns if name not in names)
    if missing and not about.name:
        raise CorpusError(f"{path} has no column {missing}; it has {', '.join(header)}")
    if about.name and outcome not in names:
        raise CorpusError(f"{path} has no event {outcome!r}, the outcome of {about.file}")
    if missing and schema:
        raise CorpusError(
            f"{path} has no {about.name} {missing}, which training had: add a row with an empty "
            f"{about.value} where it was never measured. It has "
            f"{', '.join(sorted(names - {outcome}))}"
        )
    for name in sorted(columns):
        served = input_name(name)
        alike = [each for each in sorted(names) if each != name and input_name(each) == served]
        if alike and served != name:  # else the name itself is meant
            raise CorpusError(
                f"{path} has {name!r} and {alike[0]!r}, both {served} to a served model: rename one"
            )


def _events_of(about: About, rows: Rows) -> dict[str, list[_Event]]:
    """Return the events of each id; in a table of events, all rows of one time are one event.

    If a name has two values at one time, a known value replaces a missing value. Of two different
    known values, the later value is used, and a note is printed.
    """
    people: dict[str, list[_Event]] = {}
    clashes = []
    for line, row in rows:
        person, time = row[about.id], _number(about, about.time, _Cell(line, row[about.time]))
        if person.lower() in MISSING:
            raise about.error_at(line, f"the {about.id}, whose row it is, is missing")
        history = people.setdefault(person, [])
        if history and time < (before := history[-1].time):
            back = f"goes back from {before:g} to {time:g}: sort each {about.id}'s rows by time"
            raise about.error_at(line, f"the time of {person} {back}")
        if not (about.name and history and history[-1].time == time):
            history.append(_Event(line, time, {}))
        cells = {row[about.name]: row[about.value]} if about.name else row
        for name, text in cells.items():
            known = history[-1].cell(name)
            if known.text.lower() not in MISSING:
                if text.lower() in MISSING:
                    continue
                if text != known.text:
                    clashes.append(f"{name} of {person}, lines {known.line} and {line}")
            history[-1].cells[name] = _Cell(line, text)
    if clashes:
        told = f"{len(clashes)} times have two values, and the last is used: {clashes[0]}"
        print_note(f"{about.table}: {told}", error=True)
    return people


def _schema_of(about: About, people: dict[str, list[_Event]]) -> Schema:
    """Return the columns; a column has numbers if most of its cells look like numbers."""
    cells: dict[str, list[_Cell]] = {}
    for event in itertools.chain.from_iterable(people.values()):
        for name, cell in event.cells.items():
            cells.setdefault(name, []).append(cell)
    for role in (about.outcome, *(() if about.name else (about.id, about.time))):
        cells.pop(role, None)
    names = about.columns or list(cells)
    for key, available in (("columns", list(cells)), ("log", names), ("categories", names)):
        if unknown := [name for name in getattr(about, key) if name not in available]:
            raise CorpusError(
                f"{about.file}: {key} has {unknown[0]}, but it can have only {', '.join(available)}"
            )
    return Schema({name: _categories(about, name, cells[name]) for name in names}, about.log)


def _categories(about: About, name: str, cells: list[_Cell]) -> list[str] | None:
    """Return the categories of a column; None if it has numbers.

    Print a note on categories that differ only in form, such as F and f.
    """
    categories = sorted({category_of(c.text) for c in cells if c.text.lower() not in MISSING})
    if name not in about.categories:
        known = [cell for cell in cells if cell.text.lower() not in PLACEHOLDERS]
        words = [cell for cell in known if not _LIKE_NUMBER.fullmatch(cell.text)]
        declare = f"or list {name} in categories of {about.file}"
        if words and 2 * len(words) < len(known):
            line, text = min(words)
            share = f"{len(known) - len(words)} of {len(known)}"
            remedy = f"Write a number, {declare}"
            raise about.error_at(line, f"{name} is {text}, but {share} are numbers. {remedy}")
        if 2 * len(words) < len(known) or not categories:
            return None
        if len(categories) > MOST_CATEGORIES:
            raise CorpusError(
                f"{about.table}: {name} has {len(categories)} categories, such as "
                f"{categories[0]!r}, and at most {MOST_CATEGORIES} are allowed. Write numbers, "
                f"{declare}, or leave {name} out of its columns = […]"
            )
    for first, other in rules.alike(categories):
        two = f"{first!r} and {other!r} are different categories of {name}"
        print_note(f"{about.table}: {two}", error=True)
    return categories


def _numbers(
    about: About, event: _Event, schema: Schema, missing: dict[str, list[_Cell]]
) -> Iterator[float]:
    """Yield an event's input numbers, NaN if missing; add missing cells to `missing`."""
    for name, categories in schema.columns.items():
        cell = event.cell(name)
        if cell.text.lower() in (PLACEHOLDERS if categories is None else MISSING):
            if cell.text not in SILENT:
                missing.setdefault(name, []).append(cell)
            yield from [math.nan] * (1 if categories is None else len(categories))
        elif categories is None:
            yield _number(about, name, cell, 0.0 if name in schema.log else -1e30)
        elif (found := _found(cell.text, categories)) is None:
            known = f"known are {', '.join(categories)}"
            raise about.error_at(cell.line, f"{name} was never {cell.text!r} in training; {known}")
        else:
            yield from (float(found == category) for category in categories)


def _found(text: str, categories: list[str]) -> str | None:
    """Return the category of a cell, in the same form or another; None if unknown."""
    alike = (category for category in categories if category_of(category) == category_of(text))
    return text if text in categories else next(alike, None)


def _number(about: About, name: str, cell: _Cell, least: float = -1e30) -> float:
    number = rules.parse_number(cell.text)
    if number is None or number < least:
        wanted = f"a number, {'0' if least == 0 else '-1e30'} to 1e30{rules.number_hint(cell.text)}"
        raise about.error_at(cell.line, f"{name} needs {wanted}, but it is {cell.text}")
    return number
