"""Intervals by bootstrap, and scores by the length of the source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from training.metrics import Metric, References, Rows, Texts, check_lengths

LENGTH_BUCKETS = ((1, 5), (6, 10), (11, 15), (16, 20), (21, 30), (31, 40))


def bootstrap_interval(
    statistics: Rows | np.ndarray,
    score: Callable[[Any], float],
    *,
    samples: int = 1000,
    seed: int = 0,
) -> tuple[float, float]:
    """95 % confidence interval by bootstrap resampling of sentences (Koehn 2004).

    Statistics of the sentences are `(N, K)`; `score` gives the score of their sum, `(K,)`. Where
    nothing or all is counted, in two columns, no sample differs: the open end is the exact bound of
    as many sentences (Clopper and Pearson 1934), 3.4 % for none of 107.
    """
    statistics, count = np.asarray(statistics), len(statistics)
    if not count:
        raise ValueError("Expected at least one sentence. Received: none")
    if statistics.shape[1] == 2:
        counted, total = statistics.T
        bound = 1 - 0.025 ** (1 / count)
        if not counted.any():
            return 0.0, float(score(np.array([bound, 1])))
        if (counted == total).all():
            return float(score(np.array([1 - bound, 1]))), float(score(np.array([1, 1])))
    times = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=samples)
    low, high = np.percentile([score(total) for total in times @ statistics], [2.5, 97.5])
    return float(low), float(high)


def ratio(statistics: np.ndarray) -> float:
    """Return the first number by the second, 0 where both are 0."""
    errors, total = statistics
    return float(errors / total) if total else 0.0


def by_length(
    metric: Metric,
    hypotheses: Texts,
    references: References,
    lengths: Sequence[int],
    *,
    bootstrap: bool = False,
) -> list[dict[str, Any]]:
    """Score by BLEU the sentences in each of LENGTH_BUCKETS, by words of the source; none if empty.

    Returns:
        For each bucket `words` (such as "6-10"), `sentences`, `bleu` and `references`, how many a
        sentence has in the mean: more of them make BLEU higher; and `interval` with `bootstrap`.
    """
    check_lengths(hypotheses, lengths)
    assert metric.statistics is not None
    assert metric.value is not None
    rows = []
    for low, high in LENGTH_BUCKETS:
        chosen = [i for i, length in enumerate(lengths) if low <= length <= high]
        if not chosen:
            continue
        texts = [hypotheses[i] for i in chosen], [references[i] for i in chosen]
        row: dict[str, Any] = {"words": f"{low}-{high}", "sentences": len(chosen)}
        row["bleu"] = metric.score(*texts)
        row["references"] = round(sum(map(len, texts[1])) / len(chosen), 2)
        if bootstrap:
            row["interval"] = bootstrap_interval(metric.statistics(*texts), metric.value)
        rows.append(row)
    return rows
