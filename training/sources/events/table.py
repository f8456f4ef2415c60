"""Histories from a table in CSV (.gz allowed), with a small TOML file beside it.

A table of visits has a row for each visit and a column for each value:

    id = "patient"
    time = "day"                 # a number, in any unit
    outcome = "died"             # 0 or 1; a row without it is history alone
    columns = ["bili", "sex"]    # all others if not given
    log = ["bili"]               # columns whose logarithm is taken, if any
    categories = ["stage"]       # columns of categories that look like numbers, if any

A table of events has a row for each value, and names the columns that hold its name and itself:

    id = "patient"
    time = "day"
    name = "test"
    value = "result"
    outcome = "died"             # one of the names; its value is 0 or 1

Each outcome is an example: all that is known of the id up to its time, and whether it came true.
A column of numbers stays one: cells that say "missing" are counted and printed, others refused.
"""

from __future__ import annotations

import io
import itertools
import math
import re
import sys
import tomllib
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from training.data.pair_files import CorpusError, read_text
from training.data.rules import (
    MISSING,
    PLACEHOLDERS,
    SILENT,
    category_of,
    input_name,
    parse_number,
    table_notes,
    table_rows,
)
from training.sources.events.histories import Histories, Schema

MOST_CATEGORIES = 50  # of a column that is not declared as one of categories
_LIKE_NUMBER = re.compile(r"[-+<>=≤≥~]*\s*[.,]?\d[\d.,_' ]*(e[-+]?\d+)?\s*%?", re.IGNORECASE)


def read_table(path: Path, schema: Schema | None = None) -> Histories:
    """Read a table with the TOML file beside it.

    It must have the columns of `schema`, that a run was trained on. Raises CorpusError, which names
    the line, where it cannot be read.
    """
    about = _read_about(path)
    people = _events_of(path, about, *_read_rows(path), schema)
    schema = schema or _schema_of(path, about, people)
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
            values.append(list(_numbers(path, event, schema, missing)))
            line, outcome = event.cell(about["outcome"])
            if outcome.lower() in MISSING:
                continue
            if outcome not in ("0", "1", "0.0", "1.0"):
                raise CorpusError(
                    f"{path}, line {line}: expected {about['outcome']} to be 0, 1 or "
                    f"missing. Received: {outcome}"
                )
            examples.append((start, len(times), float(outcome), person))
    if not examples:
        raise CorpusError(f"{path} has no row with the outcome {about['outcome']!r}")
    for note in table_notes(str(path), missing, times):
        print(note, file=sys.stderr)
    return Histories.of(schema, times, values, examples)


def _read_rows(path: Path) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """Return the columns that have names, and each row that is not blank with its line."""
    rows = table_rows(io.StringIO(read_text(path), newline=""), str(path))
    try:
        _, header = next(rows, (0, []))
        if twice := [name for name in header if name and header.count(name) > 1]:
            raise CorpusError(f"{path} has two columns {twice[0]!r}")
        named = [
            (line, {name: cell for name, cell in zip(header, cells, strict=True) if name})
            for line, cells in rows
        ]
    except ValueError as error:
        raise CorpusError(str(error)) from None
    return [*filter(None, header)], named


class _Cell(NamedTuple):
    line: int
    text: str


class _Event(NamedTuple):
    """A row of a table of visits, or the rows of one time: its line, its time and its cells."""

    line: int
    time: float
    cells: dict[str, _Cell]

    def cell(self, name: str) -> _Cell:
        return self.cells.get(name, _Cell(self.line, ""))


def _events_of(
    path: Path,
    about: dict[str, Any],
    header: list[str],
    rows: list[tuple[int, dict[str, str]]],
    schema: Schema | None,
) -> dict[str, list[_Event]]:
    """Return the events of each id; in a table of events the rows of one time are one event.

    Of two values of one name and time, one that is missing gives way; of two others the later one
    holds, which is printed.
    """
    long, outcome = "name" in about, about["outcome"]
    for key in ("id", "time", *(("name", "value") if long else ("outcome",))):
        if about[key] not in header:
            raise CorpusError(
                f"{path} has no column {about[key]!r}, the {key} of {_about_path(path)}; it has "
                f"{', '.join(header)}{': expected commas between columns' * (len(header) == 1)}"
            )
    names = {row[about["name"]] for _, row in rows} if long else {*header}
    columns = list(schema.columns) if schema else about.get("columns") or [*names - {outcome}]
    missing = ", ".join(repr(name) for name in columns if name not in names)
    if missing and not long:
        raise CorpusError(f"{path} has no column {missing}; it has {', '.join(header)}")
    if long and outcome not in names:
        raise CorpusError(f"{path} has no event {outcome!r}, the outcome of {_about_path(path)}")
    if missing and schema:
        raise CorpusError(
            f"{path} has no {about['name']} {missing}, which training had: add a row with "
            f"an empty {about['value']} where it was never measured. It has "
            f"{', '.join(sorted(names - {outcome}))}"
        )
    for name in sorted(columns):
        served = input_name(name)
        alike = [each for each in sorted(names) if each != name and input_name(each) == served]
        if alike and served != name:  # else it is the one that is meant
            raise CorpusError(
                f"{path} has {name!r} and {alike[0]!r}, both {served} to a served model: rename one"
            )
    people: dict[str, list[_Event]] = {}
    clashes = []
    for line, row in rows:
        person, time = row[about["id"]], _Cell(line, row[about["time"]])
        if person.lower() in MISSING:
            raise CorpusError(
                f"{path}, line {line}: the {about['id']}, whose row it is, is missing"
            )
        event = _Event(line, _number(path, about["time"], time), {})
        history = people.setdefault(person, [])
        if history and event.time < history[-1].time:
            raise CorpusError(
                f"{path}, line {line}: the time of {person} goes back from "
                f"{history[-1].time:g} to {event.time:g}"
            )
        if not (long and history and history[-1].time == event.time):
            history.append(event)
        cells = {row[about["name"]]: row[about["value"]]} if long else row
        for name, text in cells.items():
            before = history[-1].cell(name)
            if before.text.lower() not in MISSING:
                if text.lower() in MISSING:
                    continue
                if text != before.text:
                    clashes.append(f"{name} of {person}, lines {before.line} and {line}")
            history[-1].cells[name] = _Cell(line, text)
    forms: dict[str, str] = {}
    alike = [id_ for id_ in people if forms.setdefault(category_of(id_), id_) != id_]
    for id_ in alike[:1]:
        pair = f"{forms[category_of(id_)]!r} and {id_!r}"
        print(f"{path}: {len(alike)} ids are others in form alone: {pair} are two", file=sys.stderr)
    if clashes:
        print(
            f"{path}: {len(clashes)} values differ at one time, the last holds: {clashes[0]}",
            file=sys.stderr,
        )
    return people


def _schema_of(path: Path, about: dict[str, Any], people: dict[str, list[_Event]]) -> Schema:
    """Return the columns: numbers where more cells look like one than do not."""
    cells: dict[str, list[_Cell]] = {}
    for event in itertools.chain.from_iterable(people.values()):
        for name, cell in event.cells.items():
            cells.setdefault(name, []).append(cell)
    for role in ("outcome", *(() if "name" in about else ("id", "time"))):
        cells.pop(about[role], None)
    names = about.get("columns") or list(cells)
    for key, available in (("columns", list(cells)), ("log", names), ("categories", names)):
        if unknown := [name for name in about.get(key, []) if name not in available]:
            raise CorpusError(
                f"{_about_path(path)}: {key} expected some of {', '.join(available)}. "
                f"Received: {unknown[0]}"
            )
    declared = about.get("categories", [])
    return Schema(
        {name: _categories(path, name, cells[name], name in declared) for name in names},
        about.get("log", []),
    )


def _categories(path: Path, name: str, cells: list[_Cell], declared: bool) -> list[str] | None:
    """Return the categories of a column, None for one of numbers."""
    categories = sorted({category_of(c.text) for c in cells if c.text.lower() not in MISSING})
    if declared:
        return _told(path, name, categories)
    words = [cell for cell in cells if cell.text.lower() not in PLACEHOLDERS]
    count = len(words)
    words = [cell for cell in words if not _LIKE_NUMBER.fullmatch(cell.text)]
    declare = f"or list {name} in categories of {_about_path(path)}"
    if words and 2 * len(words) < count:
        raise CorpusError(
            f"{path}, line {min(words).line}: expected {name} to be a number, as "
            f"{count - len(words)} of {count} are, {declare}. Received: {min(words).text}"
        )
    if 2 * len(words) < count or not categories:
        return None
    if len(categories) > MOST_CATEGORIES:
        raise CorpusError(
            f"{path}: {name} has {len(categories)} categories, such as {categories[0]!r}: expected "
            f"numbers, at most {MOST_CATEGORIES} categories, {declare}"
        )
    return _told(path, name, categories)


def _told(path: Path, name: str, categories: list[str]) -> list[str]:
    """Return the categories; two that differ in form alone, such as F and f, are printed."""
    forms: dict[str | float, str] = {}
    for category in categories:
        number = parse_number(category)
        words = " ".join(unicodedata.normalize("NFKC", category).casefold().split())
        first = forms.setdefault(words if number is None else number, category)
        if first != category:
            print(
                f"{path}: {first!r} and {category!r} are two categories of {name}", file=sys.stderr
            )
    return categories


def _numbers(
    path: Path, event: _Event, schema: Schema, missing: dict[str, list[_Cell]]
) -> Iterator[float]:
    """Yield the numbers of an event, NaN where missing; `missing` gets the cells to print."""
    for name, categories in schema.columns.items():
        cell = event.cell(name)
        if cell.text.lower() in (PLACEHOLDERS if categories is None else MISSING):
            if cell.text not in SILENT:
                missing.setdefault(name, []).append(cell)
            yield from [math.nan] * (1 if categories is None else len(categories))
        elif categories is None:
            yield _number(path, name, cell, 0.0 if name in schema.log else -1e30)
        elif (found := _found(cell.text, categories)) is None:
            raise CorpusError(
                f"{path}, line {cell.line}: {name} was never {cell.text!r} in training; known are "
                f"{', '.join(categories)}"
            )
        else:
            yield from (float(found == category) for category in categories)


def _found(text: str, categories: list[str]) -> str | None:
    """Return the category that a cell names, in its very form or in another."""
    alike = (category for category in categories if category_of(category) == category_of(text))
    return text if text in categories else next(alike, None)


def _number(path: Path, name: str, cell: _Cell, least: float = -1e30) -> float:
    number = parse_number(cell.text)
    if number is None or number < least:
        raise CorpusError(
            f"{path}, line {cell.line}: expected {name} to be a number, {least:g} to 1e30. "
            f"Received: {cell.text}"
        )
    return number


def _about_path(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(".gz")).with_suffix(".toml")


def _read_about(path: Path) -> dict[str, Any]:
    file = _about_path(path)
    if not file.is_file():
        raise CorpusError(
            f"{path} needs {file} beside it, which names its columns: id, time, outcome"
        )
    try:
        about = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CorpusError(f"cannot read {file}: {error}") from None
    lists = ("columns", "log", "categories")
    keys = ("id", "time", "outcome", "name", "value", *lists)
    if unknown := [key for key in about if key not in keys]:
        raise CorpusError(f"{file}: unknown key {unknown[0]!r}; there are {', '.join(keys)}")
    needed = ("id", "time", "outcome", *(("name", "value") if {"name", "value"} & {*about} else ()))
    if missing := [key for key in needed if key not in about]:
        raise CorpusError(f"{file} expected the key {missing[0]}, which names a column")
    for key, value in about.items():
        texts = value if isinstance(value, list) else [value]
        if isinstance(value, list) != (key in lists) or not all(isinstance(t, str) for t in texts):
            wanted = "names" if key in lists else "a name"
            raise CorpusError(f"{file}: {key} expected {wanted}. Received: {value}")
    # The outcome of a table of events is one of the names there, not a column.
    roles = [about[key] for key in needed if key != "outcome" or "name" not in about]
    named = [*roles, *(about.get("columns", []) if "name" not in about else [])]
    if twice := [name for name in named if named.count(name) > 1]:
        raise CorpusError(f"{file} names the column {twice[0]!r} twice: each has one role")
    return about
