"""Histories of events: by name, or from a table, `events:PATH`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from training.data.corpus import unknown
from training.data.pair_files import CorpusError, chosen
from training.sources.events import mayo
from training.sources.events.histories import Histories, Schema
from training.sources.events.table import read_table


def load(
    spec: str, split: str, *, schema: Schema | None = None, limit: int | None = None, seed: int = 0
) -> Histories:
    """Read one split, or a random sample of its examples.

    Args:
        spec: a name or `events:PATH`; a table has no splits and is read whole.
        split: `train`, `dev`, `test` or `all`; a patient is in one of the first three alone.
        schema: the columns that a run was trained on; those of the table if not given.
        limit: most examples.
        seed: seed of the sample.

    Raises:
        CorpusError: there is no such set or split, or the table cannot be read as one.
    """
    form, colon, path = spec.partition(":")
    if colon and form == "events":
        histories = read_table(Path(path).expanduser(), schema)
    elif spec in mayo.NAMES:
        splits = {"train": range(30, 100), "dev": range(20, 30), "test": range(20)}
        histories = mayo.load(spec)
        if split in splits:
            histories = histories.of_people(splits[split], 100)
        elif split != "all":
            raise CorpusError(f"{spec} has no split {split!r}; it has {', '.join(splits)}, all")
    else:
        raise unknown("events", spec, "events:PATH", mayo.NAMES)
    if schema is not None and schema != histories.schema:
        raise CorpusError(f"{spec} expected the columns {', '.join(schema.inputs())}")
    return histories.select(chosen(len(histories.labels), limit, seed))


def load_training(spec: str, limit: int = 0, seed: int = 0) -> tuple[Histories, Histories]:
    """Read what to train on and what to measure progress on.

    Of a table a fixed 1 in 10 of the ids is held out, which depends on the id alone.
    """
    if ":" not in spec:
        return load(spec, "train", limit=limit, seed=seed), load(spec, "dev")
    everything = load(spec, "all")
    train, dev = everything.of_people(range(1, 10), 10), everything.of_people(range(1), 10)
    for part in (train, dev):
        if len(np.unique(part.labels)) < 2:
            raise CorpusError(
                f"{spec} has too few ids for a dev set with both outcomes, 0 and 1: "
                f"{len(np.unique(everything.people))}"
            )
    return train.select(chosen(len(train.labels), limit, seed)), dev
