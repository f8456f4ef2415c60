"""The figures by which predictions are scored, in one table, and their intervals by bootstrap.

A new one is an entry of METRICS and its test: `metric` of a configuration may be its name, and
histories, cards, pages, reports and `lab/` read it there. Importing this imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

Texts = Sequence[str]
References = Sequence[Sequence[str]]  # of each text one or more
Rows = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Metric:
    """A figure of predictions."""

    # from hypotheses and references to the figure, in percent; of an outcome from labels and
    # probabilities to the figure
    score: Callable[..., float]
    better: str  # "higher" or "lower"
    label: str  # the name that people read
    meaning: str  # the figure in a few words, for whoever does not know the name
    # from hypotheses and references to numbers of each sentence, `(N, K)`; None where the figure is
    # not one of their sums
    statistics: Callable[[Texts, References], Rows] | None = None
    value: Callable[[Sequence[float]], float] | None = None  # from the sums `(K,)` to the figure

    def key(self, figure: float) -> float:
        """Return a number that is greater for a better figure."""
        return figure if self.better == "higher" else -figure


def sacrebleu_metric(name: str, lowercase: bool = False) -> Any:
    """Return sacrebleu's metric (Post 2018) of a name in METRICS: BLEU or chrF; None for others."""
    if name not in ("bleu", "bleu-zh", "chrf"):
        return None
    from sacrebleu.metrics import BLEU, CHRF

    if name == "chrf":
        return CHRF(lowercase=lowercase)
    return BLEU(lowercase=lowercase, tokenize="zh" if name == "bleu-zh" else None)


def bleu_statistics(name: str, hypotheses: Texts, references: References) -> Rows:
    """Return n-gram matches, n-gram counts, length and reference length, `(N, 10)`."""
    check_lengths(hypotheses, references)
    scorer = sacrebleu_metric(name)
    scorer.effective_order = True  # of one sentence, which may have fewer than four words
    scores = [
        scorer.sentence_score(hypothesis, list(texts))
        for hypothesis, texts in zip(hypotheses, references, strict=True)
    ]
    return [[*each.counts, *each.totals, each.sys_len, each.ref_len] for each in scores]


def bleu_of(sums: Sequence[float]) -> float:
    """Return BLEU in percent of summed `bleu_statistics`, `(10,)`."""
    from sacrebleu.metrics import BLEU

    numbers = [int(number) for number in sums]
    parts = numbers[:4], numbers[4:8], *numbers[8:]
    return float(BLEU.compute_bleu(*parts, smooth_method="exp").score)  # as a corpus is smoothed


def streams(hypotheses: Texts, references: References) -> list[tuple[str | None, ...]]:
    """Return references as sacrebleu takes them: the first of all sentences, the second …"""
    check_lengths(hypotheses, references)
    return list(zip_longest(*references))


def symbol_errors(hypotheses: Texts, references: References) -> Rows:
    """Return edits to the closest reference and that one's length in symbols: `(N, 2)`.

    Symbols, such as phones, are separated by spaces; of equally close references the first counts.
    """
    symbols = [[text.split() for text in texts] for texts in references]
    return character_errors([hypothesis.split() for hypothesis in hypotheses], symbols)


def character_errors(
    hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]
) -> Rows:
    """Return edits to the closest reference and that one's length in characters: `(N, 2)`."""
    from rapidfuzz.distance import Levenshtein

    check_lengths(hypotheses, references)
    rows = []
    for hypothesis, texts in zip(hypotheses, references, strict=True):
        choices = [(Levenshtein.distance(hypothesis, text), len(text)) for text in texts]
        rows.append(min(choices, key=lambda choice: choice[0]))
    return rows


def word_errors(hypotheses: Texts, references: References) -> Rows:
    """Return whether no reference is matched, and 1, of each: `(N, 2)`."""
    return [(1 - match, 1) for match, _ in exact_matches(hypotheses, references)]


def exact_matches(hypotheses: Texts, references: References) -> Rows:
    """Return whether a reference is matched but for spaces, and 1, of each: `(N, 2)`."""
    check_lengths(hypotheses, references)
    return [
        (int(any(hypothesis.split() == text.split() for text in texts)), 1)
        for hypothesis, texts in zip(hypotheses, references, strict=True)
    ]


def ratio(sums: Sequence[float] | np.ndarray) -> float:
    """Return the first sum by the second; 0 where both are 0."""
    count, total = sums
    return float(count / total) if total else 0.0


def percent(sums: Sequence[float]) -> float:
    """Return `ratio` in percent."""
    return 100 * ratio(sums)


def check_lengths(hypotheses: Sequence, others: Sequence) -> None:
    """Refuse hypotheses that are not as many as their references, or none."""
    if not len(hypotheses) or len(hypotheses) != len(others):
        raise ValueError(
            "Expected as many predictions as sentences, at least one. Received: "
            f"{len(hypotheses)} and {len(others)}"
        )


def auc(labels: Any, probabilities: Any) -> float:
    """Return the area under the receiver operating characteristic; 0.5 where all are alike."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(labels, probabilities)) if len(set(labels)) > 1 else 0.5


def auprc(labels: Any, probabilities: Any) -> float:
    """Return the average precision, the area under precision over recall."""
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(labels, probabilities))


def _corpus(name: str, label: str) -> Metric:
    """Return BLEU (Papineni et al. 2002) or chrF2 (Popović 2015), in percent."""

    def score(hypotheses: Texts, references: References) -> float:
        corpus = list(hypotheses), streams(hypotheses, references)
        return float(sacrebleu_metric(name).corpus_score(*corpus).score)

    meaning = "runs of {} shared with a reference, 0 to 100"
    if name == "chrf":
        return Metric(score, "higher", label, meaning.format("characters"))
    sums = partial(bleu_statistics, name), bleu_of
    return Metric(score, "higher", label, meaning.format("words"), *sums)


def _rate(statistics: Callable[..., Rows], better: str, label: str, meaning: str) -> Metric:
    def score(hypotheses: Texts, references: References) -> float:
        rows = statistics(hypotheses, references)
        return percent([sum(column) for column in zip(*rows, strict=True)])

    return Metric(score, better, label, meaning, statistics, percent)


# Of several figures of a record, the first here is the one by which epochs are compared.
METRICS: dict[str, Metric] = {
    "bleu": _corpus("bleu", "BLEU"),
    "bleu-zh": _corpus("bleu-zh", "BLEU"),  # of Chinese characters; recorded as "bleu"
    "wer": _rate(word_errors, "lower", "WER", "% of whole answers wrong"),
    "cer": _rate(character_errors, "lower", "CER", "% of characters wrong, missing or too many"),
    "exact": _rate(exact_matches, "higher", "exact", "% of whole answers right"),
    "chrf": _corpus("chrf", "chrF"),
    "per": _rate(symbol_errors, "lower", "PER", "% of symbols wrong, missing or too many"),
    "auc": Metric(
        auc, "higher", "AUC", "how often of two people the one with the outcome is ranked first"
    ),
    "auprc": Metric(auprc, "higher", "AUPRC", "precision, averaged over recall"),
}
# The figures of a configuration's `metric`, where it is not one of METRICS alone.
GROUPS: dict[str, tuple[str, ...]] = {
    "bleu": ("bleu", "chrf"),
    "bleu-zh": ("bleu-zh", "chrf"),
    "exact": ("exact", "chrf"),
    "symbols": ("per", "wer"),
    "characters": ("exact", "cer"),
}
OF_OUTCOMES = ("auc", "auprc")
OF_TEXTS = tuple(dict.fromkeys([*GROUPS, *(name for name in METRICS if name not in OF_OUTCOMES)]))


def figures(metric: str) -> dict[str, Metric]:
    """Return the figures of a configuration's `metric`, by the names that records have."""
    names = GROUPS.get(metric, (metric,))
    return {name.partition("-")[0]: METRICS[name] for name in names}


def score(metric: str, hypotheses: Texts, references: References) -> dict[str, float]:
    """Score texts by a configuration's `metric`: figures by name, in percent."""
    return {name: each.score(hypotheses, references) for name, each in figures(metric).items()}


def lowered(hypotheses: Texts, references: References) -> tuple[Texts, References]:
    """Return both in lower case."""
    return [text.lower() for text in hypotheses], [[t.lower() for t in each] for each in references]


def signatures(
    metric: str, hypotheses: Texts, references: References, *, lowercase: bool = False
) -> dict[str, str]:
    """Return sacrebleu's signature of each figure that it computes, `NAME_signature`."""
    result = {}
    for name in GROUPS.get(metric, (metric,)):
        if scorer := sacrebleu_metric(name, lowercase):
            scorer.corpus_score(list(hypotheses), streams(hypotheses, references))
            result[f"{name.partition('-')[0]}_signature"] = str(scorer.get_signature())
    return result


def deciding(record: Mapping[str, object]) -> str | None:
    """Return the name of the figure of texts by which a record's epoch is judged, if it has one."""
    names = (name for name in METRICS if name not in OF_OUTCOMES)
    return next((name for name in names if name in record), None)


def bootstrap_interval(
    statistics: Rows | np.ndarray, score: Callable[[Any], float]
) -> tuple[float, float]:
    """95 % confidence interval by bootstrap of 1,000 samples of the sentences (Koehn 2004).

    Statistics of the sentences are `(N, K)`; `score` gives the score of their sum, `(K,)`. Where
    nothing or all is counted, in two columns, no sample differs: the open end is the exact bound of
    as many sentences (Clopper and Pearson 1934), 3.4 % for none of 107.
    """
    import numpy as np

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
    times = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), size=1000)
    low, high = np.percentile([score(total) for total in times @ statistics], [2.5, 97.5])
    return float(low), float(high)
