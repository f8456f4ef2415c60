"""Histories from a table in CSV (.gz allowed), with a small TOML file beside it.

A table of visits has a row for each visit and a column for each value:

    id = "patient"
    time = "day"                 # a number, in any unit
    outcome = "died"             # 0 or 1; a row without it is history alone
    columns = ["bili", "sex"]    # all others if not given
    log = ["bili"]               # columns whose logarithm is taken, if any

A table of events has a row for each value, and names the columns that hold its name and itself:

    id = "patient"
    time = "day"
    name = "test"
    value = "result"
    outcome = "died"             # one of the names; its value is 0 or 1

Each outcome is an example: all that is known of the id up to its time, and whether it came true.
"""

from __future__ import annotations

import csv
import io
import math
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from training.data.pair_files import CorpusError, read_text
from training.sources.events.histories import MISSING, MOST, Histories, Schema


def read_table(path: Path, schema: Schema | None = None) -> Histories:
    """Read a table with the TOML file beside it; a CorpusError names the line."""
    about = _read_about(path)
    try:
        rows = list(csv.reader(io.StringIO(read_text(path), newline="")))
    except csv.Error as error:
        raise CorpusError(f"cannot read {path}: {error}") from None
    header = [name.strip() for name in rows[0]]
    if twice := [name for name in header if header.count(name) > 1]:
        raise CorpusError(f"{path} has two columns {twice[0]!r}")
    long = "name" in about
    for key in ("id", "time", *(("name", "value") if long else ("outcome",))):
        if about[key] not in header:
            raise CorpusError(
                f"{path} has no column {about[key]!r}, the {key} of {_about_path(path)}; it has "
                f"{', '.join(header)}"
            )
    cells = []
    for number, row in enumerate(rows[1:], start=2):
        if any(row) and len(row) != len(header):
            raise CorpusError(
                f"{path}, line {number}: expected {len(header)} columns. Received: {len(row)}"
            )
        if any(row):
            cells.append((number, dict(zip(header, map(str.strip, row), strict=True))))
    events = _long_events(path, about, cells) if long else _wide_events(path, about, cells)
    return _assemble(path, about, events, schema)


@dataclass
class _Event:
    """A row: where it stands, when it was, what was found, and the outcome if it says one."""

    line: int
    time: float
    values: dict[str, str]
    outcome: str


def _wide_events(
    path: Path, about: dict[str, Any], cells: list[tuple[int, dict[str, str]]]
) -> dict[str, list[_Event]]:
    """Return the events of each id, from a row for each visit."""
    header = list(cells[0][1]) if cells else []
    special = (about["id"], about["time"], about["outcome"])
    names = about.get("columns") or [name for name in header if name not in special]
    if missing := [name for name in names if name not in header]:
        raise CorpusError(f"{path} has no column {missing[0]!r}; it has {', '.join(header)}")
    people: dict[str, list[_Event]] = {}
    for number, row in cells:
        event = _Event(
            number,
            _number(path, number, about["time"], row[about["time"]]),
            {name: row[name] for name in names},
            row[about["outcome"]],
        )
        _append(path, people.setdefault(row[about["id"]], []), event, row[about["id"]])
    return people


def _long_events(
    path: Path, about: dict[str, Any], cells: list[tuple[int, dict[str, str]]]
) -> dict[str, list[_Event]]:
    """Return the events of each id, from a row for each value; those of one time are one event."""
    people: dict[str, list[_Event]] = {}
    found = False
    for number, row in cells:
        time = _number(path, number, about["time"], row[about["time"]])
        name, value = row[about["name"]], row[about["value"]]
        history = people.setdefault(row[about["id"]], [])
        if not history or history[-1].time != time:
            event = _Event(number, time, {}, "")
            _append(path, history, event, row[about["id"]])
        if name == about["outcome"]:
            history[-1].outcome, found = value, True
        else:
            history[-1].values[name] = value
    if not found:
        raise CorpusError(
            f"{path} has no event {about['outcome']!r}, the outcome of {_about_path(path)}"
        )
    return people


def _append(path: Path, history: list[_Event], event: _Event, person: str) -> None:
    if history and event.time < history[-1].time:
        raise CorpusError(
            f"{path}, line {event.line}: the time of {person} goes back from "
            f"{history[-1].time:g} to {event.time:g}"
        )
    history.append(event)


def _assemble(
    path: Path, about: dict[str, Any], people: dict[str, list[_Event]], schema: Schema | None
) -> Histories:
    known = schema or _schema_of(path, about, people)
    names = known.inputs()
    if twice := [name for name in names if names.count(name) > 1]:
        raise CorpusError(f"{path} has two columns of the name {twice[0]}")
    times: list[float] = []
    values, examples = [], []
    for person, history in people.items():
        start = len(times)
        for event in history:
            times.append(event.time)
            values.append(list(_numbers(path, event, known)))
            if event.outcome in MISSING:
                continue
            if event.outcome not in ("0", "1", "0.0", "1.0"):
                raise CorpusError(
                    f"{path}, line {event.line}: expected {about['outcome']} to be 0, 1 or "
                    f"missing. Received: {event.outcome}"
                )
            examples.append((start, len(times), float(event.outcome), person))
    if not examples:
        raise CorpusError(f"{path} has no row with the outcome {about['outcome']!r}")
    starts, ends, labels, ids = zip(*examples, strict=True)
    return Histories(
        known,
        np.array(times, np.float64),
        np.array(values, np.float32).reshape(len(times), -1),
        np.array(starts, np.int64),
        np.array(ends, np.int64),
        np.array(labels, np.float32),
        np.array(ids),
    )


def _schema_of(path: Path, about: dict[str, Any], people: dict[str, list[_Event]]) -> Schema:
    """Return the columns there are: numbers where all that stands there are numbers."""
    found: dict[str, set[str]] = {}
    for history in people.values():
        for event in history:
            for name, cell in event.values.items():
                found.setdefault(name, set())
                if cell not in MISSING:
                    found[name].add(cell)
    names = about.get("columns") or list(found)
    for key, known in (("columns", list(found)), ("log", names)):
        if unknown := [name for name in about.get(key, []) if name not in known]:
            raise CorpusError(
                f"{_about_path(path)}: {key} expected some of {', '.join(known)}. "
                f"Received: {unknown[0]}"
            )
    columns = {
        name: None if all(map(_is_number, found[name])) else sorted(found[name]) for name in names
    }
    return Schema(columns, about.get("log", []))


def _numbers(path: Path, event: _Event, schema: Schema) -> Iterator[float]:
    for name, categories in schema.columns.items():
        cell = event.values.get(name, "")
        if cell in MISSING:
            yield from [math.nan] * (1 if categories is None else len(categories))
        elif categories is None:
            yield _number(path, event.line, name, cell)
        elif cell not in categories:
            raise CorpusError(
                f"{path}, line {event.line}: {name} was never {cell!r} in training; known are "
                f"{', '.join(categories)}"
            )
        else:
            yield from (float(cell == category) for category in categories)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _number(path: Path, line: int, name: str, cell: str) -> float:
    if not _is_number(cell) or not abs(float(cell)) <= MOST:
        raise CorpusError(
            f"{path}, line {line}: expected {name} to be a number, -1e30 to 1e30. Received: {cell}"
        )
    return float(cell)


def _about_path(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(".gz")).with_suffix(".toml")


def _read_about(path: Path) -> dict[str, Any]:
    file = _about_path(path)
    if not file.is_file():
        raise CorpusError(
            f"{path} needs {file} beside it, which names its columns: id, time, outcome"
        )
    try:
        about = tomllib.loads(file.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CorpusError(f"cannot read {file}: {error}") from None
    known = ("id", "time", "outcome", "columns", "log", "name", "value")
    if unknown := [key for key in about if key not in known]:
        raise CorpusError(f"{file}: unknown key {unknown[0]!r}; there are {', '.join(known)}")
    needed = ("id", "time", "outcome", *(("name", "value") if {"name", "value"} & {*about} else ()))
    if missing := [key for key in needed if key not in about]:
        raise CorpusError(f"{file} expected the key {missing[0]}, which names a column")
    for key in known:
        value, wanted = about.get(key), "names" if key in ("columns", "log") else "a name"
        texts = value if isinstance(value, list) else [value]
        if key in about and not (
            isinstance(value, list) == (wanted == "names")
            and all(isinstance(t, str) for t in texts)
        ):
            raise CorpusError(f"{file}: {key} expected {wanted}. Received: {value}")
    # The outcome of a table of events is one of the names there, not a column.
    roles = [about[key] for key in needed if key != "outcome" or "name" not in about]
    named = [*roles, *(about.get("columns", []) if "name" not in about else [])]
    if twice := [name for name in named if named.count(name) > 1]:
        raise CorpusError(f"{file} names the column {twice[0]!r} twice: each has one role")
    return about
