"""Sources of the dev split: examples to show people, and texts to compare answers on."""

from __future__ import annotations

import base64
import csv
import io
from pathlib import Path
from typing import Any

import numpy as np

from training.command.errors import UserError
from training.data.splits import load_split
from training.runs.run import Run
from training.sources.events.histories import Histories
from training.sources.kinds import KINDS

COUNT = 5
_DRAWN = 100  # sources of which they are taken
_MOST_CHARACTERS = 80
_MOST_BYTES = 20_000  # of an image
_PEOPLE = 3


def dev_sources(run: Run, limit: int) -> list[Any]:
    """Return at most so many sources of the dev split, none where it cannot be found."""
    config = run.config
    try:
        if KINDS[config.source].tokens:
            return list(load_split(config, "dev", limit=limit)[0].sources)
        split = run.source.load_split(config, config.data, "dev", limit=limit)
        if config.source == "events":
            return [split.inputs(n, config.max_events) for n in range(len(split.labels))]
        return list(split.sources)
    except UserError:
        return []


def examples(run: Run) -> list[str]:
    """Return what to begin with: short texts, small images in base64, or a table in CSV.

    People's histories are shown of data sets that are published, not of a table of one's own.
    """
    if KINDS[run.config.source].tokens:
        texts = dict.fromkeys(dev_sources(run, _DRAWN))
        return [text for text in texts if len(text) <= _MOST_CHARACTERS][:COUNT]
    shown = {"events": _table, "image": _images}.get(run.config.source)
    return shown(run) if shown else []


def _images(run: Run) -> list[str]:
    sources = dev_sources(run, COUNT)
    files = [file.read_bytes() if isinstance(file, Path) else file for file in sources]
    return [base64.b64encode(file).decode() for file in files if len(file) <= _MOST_BYTES]


def _table(run: Run) -> list[str]:
    """Return the whole histories of some people, with the names that the served model has."""
    if ":" in run.config.data:
        return []
    try:
        histories: Histories = run.source.load_split(run.config, run.config.data, "dev")
    except UserError:
        return []
    last = {person: n for n, person in enumerate(histories.people)}
    file = io.StringIO()
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(["id", "time", *histories.schema.inputs()])
    for person, n in list(last.items())[:_PEOPLE]:
        for event in range(histories.starts[n], histories.ends[n]):
            values = (f"{v:g}" if np.isfinite(v) else "" for v in histories.values[event])
            rows.writerow([person, f"{histories.times[event]:g}", *values])
    return [file.getvalue()]
