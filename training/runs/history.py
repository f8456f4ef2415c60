"""A run's history, and pure functions of its records, one for each epoch.

A resumed run has the same history as one that never stopped. `by` is the configuration's `keep_by`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from training.command.errors import RunError
from training.command.files import read_json

Record = dict[str, float]


def read_history(file: Path) -> list[Record]:
    """Read the history of a run; a RunError where it is damaged."""
    history = read_json(file)
    records = isinstance(history, list) and all(isinstance(record, dict) for record in history)
    if not records or any("epoch" not in record for record in history):
        raise RunError(f"cannot read {file}: expected a list of records with an epoch each")
    return history


def dev_score(record: Record, by: str = "auto") -> float:
    """Score of an epoch, higher is better.

    By "perplexity" it is the perplexity. Otherwise it is BLEU, exact matches of short targets, WER
    of pronunciations, CER of images or cross-entropy of a label; where nothing was translated, the
    perplexity.
    """
    if by == "perplexity":
        return -record["val_perplexity"]
    if "bleu" in record:
        return record["bleu"]
    if "exact" in record and "cer" not in record:
        return record["exact"]
    return -next(
        record[key] for key in ("wer", "cer", "val_loss", "val_perplexity") if key in record
    )


def was_translated(record: Record) -> bool:
    """Whether the epoch's score is of translations, not of probabilities."""
    return not record.keys().isdisjoint(("bleu", "exact", "wer", "cer"))


def best(history: Sequence[Record], by: str = "auto") -> Record:
    """Return the record with the best score, the first of several."""
    return max(history, key=lambda record: dev_score(record, by))
