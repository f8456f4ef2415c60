"""What a run's history says: pure functions of its records, one an epoch.

A run that was stopped and resumed has the same history, and so decides the same.
"""

from __future__ import annotations

from collections.abc import Sequence

Record = dict[str, float]


def dev_score(record: Record) -> float:
    """How good an epoch is, higher is better: BLEU, or less WER for pronunciations.

    Where nothing was translated, less perplexity.
    """
    if "bleu" in record:
        return record["bleu"]
    return -record["wer" if "wer" in record else "val_perplexity"]


def best(history: Sequence[Record]) -> Record:
    """Return the record with the best score, the first of several."""
    return max(history, key=dev_score)


def out_of_patience(history: Sequence[Record], patience: int) -> bool:
    """Whether the best epoch lies `patience` epochs back; never for 0."""
    if not patience or not history:
        return False
    return history[-1]["epoch"] - best(history)["epoch"] >= patience


def is_complete(history: Sequence[Record], epochs: int, patience: int) -> bool:
    """Whether all epochs are done, or patience is at its end."""
    return len(history) >= epochs or out_of_patience(history, patience)


def rate_cuts(history: Sequence[Record], patience: int) -> int:
    """How often the learning rate has been cut: each time `patience` epochs bring no better score.

    After a cut as many epochs are waited for again.
    """
    highest, waited, cuts = float("-inf"), 0, 0
    for record in history:
        waited += 1
        if dev_score(record) > highest:
            highest, waited = dev_score(record), 0
        elif waited == patience:
            waited, cuts = 0, cuts + 1
    return cuts
