"""Histories of events: two cohorts of the Mayo Clinic by name, or a table, `events:PATH`.

The cohorts come from R's package `survival`. `pbcseq` (primary biliary cirrhosis, 312 patients,
1,945 visits; Murtaugh et al. 1994) predicts at each visit whether death or a transplant follows
within two years. `nafld` (fatty liver disease and controls, 17,549 people, 400,123 laboratory
values; Allen et al. 2018) predicts at the index date whether death follows within five years. If a
person is lost to follow-up before the end of this period, there is no example.
"""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from pathlib import Path

import numpy as np

from training.data.read._files import read_text
from training.data.read._sentences import chosen
from training.data.read._specs import CorpusError
from training.data.read.named._corpora import find_folder
from training.data.rules import MISSING
from training.sources.events._histories import Histories, Schema
from training.sources.events._table import read_table
from training.sources.kinds import check_data


def load(
    spec: str, split: str, *, schema: Schema | None = None, limit: int | None = None, seed: int = 0
) -> Histories:
    """Read one split, or a random sample of at most `limit` of its examples.

    Args:
        spec: name of a cohort, or `events:PATH` for a table.
        split: of a cohort `train`, `dev`, `test` or `all`; each patient is in exactly one of the
            first three. A table is read whole, whatever the split.
        schema: the columns that a run was trained on, which the data must have.
        limit: most examples; all if not given.
        seed: seed of the sample.

    Raises CorpusError if there is no such cohort or split, or the table cannot be read.
    """
    if spec.startswith("events:"):
        histories = read_table(Path(spec.removeprefix("events:")).expanduser(), schema)
    else:
        check_data("events", spec, split)
        splits = {"train": range(30, 100), "dev": range(20, 30), "test": range(20)}
        histories = load_cohort(spec)
        if split in splits:
            histories = histories.of_people(splits[split], 100)
    if schema is not None and schema != histories.schema:
        raise CorpusError(f"{spec} expected the columns {', '.join(schema.inputs())}")
    return histories.select(chosen(len(histories.labels), limit, seed))


def load_training(
    spec: str, limit: int = 0, seed: int = 0, schema: Schema | None = None
) -> tuple[Histories, Histories]:
    """Read the training set and the dev set, as `load` does.

    Of a table, about one tenth of the ids form the dev set. The choice depends only on the id.
    """
    if ":" not in spec:
        train = load(spec, "train", schema=schema, limit=limit, seed=seed)
        return train, load(spec, "dev", schema=schema)
    everything = load(spec, "all", schema=schema)
    train, dev = everything.of_people(range(1, 10), 10), everything.of_people(range(1), 10)
    for part in (train, dev):
        if len(np.unique(part.labels)) < 2:
            ids, true = len(np.unique(everything.people)), np.count_nonzero(everything.labels)
            raise CorpusError(
                f"{spec} has too few ids for a dev set with both outcomes, 0 and 1: {ids}, and "
                f"{true} of {len(everything.labels)} outcomes are 1"
            )
    return train.select(chosen(len(train.labels), limit, seed)), dev


FOLDER = "events-mayo"
_TWO_YEARS, _FIVE_YEARS = 730, 1826  # days
_YEAR = 365.25
_PBC_LOG = ("bili", "albumin", "protime", "ast", "alk.phos", "chol", "platelet")
_PBC_PLAIN = ("edema", "stage", "ascites", "hepato", "spiders")
_NAFLD_TESTS = ("hdl", "chol", "sbp", "dbp", "smoke", "fib4")


def load_cohort(name: str) -> Histories:
    """Read a whole cohort; raise a CorpusError if its files cannot be found or downloaded."""
    files = ("pbcseq",) if name == "pbcseq" else ("nafld1", "nafld2", "nafld3")
    folder = find_folder(name, FOLDER, [f"{file}.csv.gz" for file in files])
    tables = [_read(folder / f"{file}.csv.gz") for file in files]
    return _pbcseq(*tables) if name == "pbcseq" else _nafld(*tables)


def _pbcseq(rows: list[dict[str, str]]) -> Histories:
    schema = Schema(dict.fromkeys((*_PBC_LOG, *_PBC_PLAIN, "age", "female")), [*_PBC_LOG])
    times: list[float] = []
    values, examples = [], []
    patients: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        patients[row["id"]].append(row)
    for patient, visits in patients.items():
        visits = sorted(visits, key=lambda visit: float(visit["day"]))
        start = len(times)
        until, ended = float(visits[0]["futime"]), visits[0]["status"] not in ("0", "0.0")
        for visit in visits:
            day = float(visit["day"])
            age = float(visit["age"]) + day / _YEAR
            measured = [_cell(visit[name]) for name in (*_PBC_LOG, *_PBC_PLAIN)]
            times.append(day)
            values.append([*measured, age, float(visit["sex"] == "f")])
            soon = until - day <= _TWO_YEARS
            if until > day and (ended or not soon):
                examples.append((start, len(times), float(soon), patient))
    return Histories.of(schema, times, values, examples)


def _nafld(
    people: list[dict[str, str]], tests: list[dict[str, str]], diagnoses: list[dict[str, str]]
) -> Histories:
    names = sorted({row["event"] for row in diagnoses} - {"nafld"})
    schema = Schema(dict.fromkeys((*_NAFLD_TESTS, *names, "age", "male", "bmi")))
    column = {name: number for number, name in enumerate(schema.columns)}
    by_person: dict[str, dict[float, dict[str, list[float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    numbers = [(row, row["test"], _cell(row["value"])) for row in tests]
    for row, name, number in [*numbers, *((row, row["event"], 1.0) for row in diagnoses)]:
        if float(row["days"]) <= 0 and name in column and not np.isnan(number):
            by_person[row["id"]][float(row["days"])][name].append(number)
    times: list[float] = []
    values, examples = [], []
    for row in people:
        until, died = float(row["futime"]), row["status"] in ("1", "1.0")
        if until <= 0 or (until <= _FIVE_YEARS and not died):
            continue
        history = by_person[row["id"]]
        for name in ("age", "male", "bmi"):
            history[0.0][name].append(_cell(row[name]))
        start = len(times)
        for day in sorted(history):
            event = np.full(len(column), np.nan, np.float32)
            for name, several in history[day].items():
                event[column[name]] = np.mean(several)
            times.append(day)
            values.append(event)
        examples.append((start, len(times), float(until <= _FIVE_YEARS), row["id"]))
    return Histories.of(schema, times, values, examples)


def _cell(text: str) -> float:
    return float("nan") if text.lower() in MISSING else float(text)


def _read(path: Path) -> list[dict[str, str]]:
    rows = list(csv.DictReader(io.StringIO(read_text(path))))
    if not rows:
        raise CorpusError(f"{path} is empty")
    return rows
