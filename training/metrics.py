"""The metrics that score predictions, in one table, and their bootstrap confidence intervals.

To add a metric, add an entry to METRICS and a test. The key `metric` of a configuration accepts its
name, and histories, cards, pages, reports and `lab/` read the entry. Importing this module imports
no heavy package.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

Texts = Sequence[str]
References = Sequence[Sequence[str]]  # one or more references for each text
Rows = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Metric:
    """A metric of predictions; its value is called a figure."""

    # for texts: hypotheses and references to the figure, in percent;
    # for outcomes: labels and probabilities to the figure
    score: Callable[..., float]
    better: str  # "higher" or "lower"
    label: str  # the name in tables and charts
    meaning: str  # the figure in a few words, for readers who do not know the name
    # from hypotheses and references to K numbers for each sentence, `(N, K)`; None if the figure
    # cannot be computed from the sums of such numbers
    statistics: Callable[[Texts, References], Rows] | None = None
    value: Callable[[Sequence[float]], float] | None = None  # from the sums `(K,)` to the figure

    @property
    def best(self) -> float:
        """The figure of right texts."""
        return 100.0 if self.better == "higher" else 0.0

    def key(self, figure: float) -> float:
        """Return a number to compare figures by: the better the figure, the greater the number."""
        return figure if self.better == "higher" else -figure


def sacrebleu_metric(name: str, lowercase: bool = False) -> Any:
    """Return sacrebleu's BLEU or chrF (Post 2018) for a name in METRICS; None for other names."""
    if name not in ("bleu", "bleu-zh", "chrf"):
        return None
    from sacrebleu.metrics import BLEU, CHRF

    if name == "chrf":
        return CHRF(lowercase=lowercase)
    return BLEU(lowercase=lowercase, tokenize="zh" if name == "bleu-zh" else None)


def bleu_statistics(name: str, hypotheses: Texts, references: References) -> Rows:
    """Return 4 n-gram matches, 4 n-gram counts, length and reference length: `(N, 10)`."""
    check_lengths(hypotheses, references)
    scorer = sacrebleu_metric(name)
    scorer.effective_order = True  # a sentence may have fewer than four words
    scores = [
        scorer.sentence_score(hypothesis, list(texts))
        for hypothesis, texts in zip(hypotheses, references, strict=True)
    ]
    return [[*each.counts, *each.totals, each.sys_len, each.ref_len] for each in scores]


def bleu_of(sums: Sequence[float]) -> float:
    """Return BLEU, in percent, from the sum of `bleu_statistics` over sentences, `(10,)`."""
    from sacrebleu.metrics import BLEU

    numbers = [int(number) for number in sums]
    parts = numbers[:4], numbers[4:8], *numbers[8:]
    return float(BLEU.compute_bleu(*parts, smooth_method="exp").score)  # as corpus BLEU smooths


def streams(hypotheses: Texts, references: References) -> list[tuple[str | None, ...]]:
    """Return references as sacrebleu expects: all first references, then all second ones …"""
    check_lengths(hypotheses, references)
    return list(zip_longest(*references))


def symbol_errors(hypotheses: Texts, references: References) -> Rows:
    """Return the edits to the closest reference, and its length in symbols: `(N, 2)`.

    Spaces separate symbols, such as phones. If several references are equally close, the first
    counts.
    """
    symbols = [[text.split() for text in texts] for texts in references]
    return character_errors([hypothesis.split() for hypothesis in hypotheses], symbols)


def character_errors(
    hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]
) -> Rows:
    """Return the edits to the closest reference, and its length in characters: `(N, 2)`."""
    from rapidfuzz.distance import Levenshtein

    check_lengths(hypotheses, references)
    rows = []
    for hypothesis, texts in zip(hypotheses, references, strict=True):
        choices = [(Levenshtein.distance(hypothesis, text), len(text)) for text in texts]
        rows.append(min(choices, key=lambda choice: choice[0]))
    return rows


def word_errors(hypotheses: Texts, references: References) -> Rows:
    """Return for each hypothesis 1 if it matches no reference, else 0; then 1: `(N, 2)`."""
    return [(1 - match, 1) for match, _ in exact_matches(hypotheses, references)]


def exact_matches(hypotheses: Texts, references: References) -> Rows:
    """Return for each hypothesis 1 if it matches a reference, spaces aside; then 1: `(N, 2)`."""
    check_lengths(hypotheses, references)
    return [
        (int(any(hypothesis.split() == text.split() for text in texts)), 1)
        for hypothesis, texts in zip(hypotheses, references, strict=True)
    ]


def ratio(sums: Sequence[float] | np.ndarray) -> float:
    """Return the first sum divided by the second; 0 if the second is 0."""
    count, total = sums
    return float(count / total) if total else 0.0


def percent(sums: Sequence[float]) -> float:
    """Return the `ratio` of two sums, in percent."""
    return 100 * ratio(sums)


def check_lengths(hypotheses: Sequence, others: Sequence) -> None:
    """Raise a ValueError if the two sequences differ in length or are empty."""
    if not len(hypotheses) or len(hypotheses) != len(others):
        raise ValueError(
            "Expected as many predictions as sentences, at least one. Received: "
            f"{len(hypotheses)} and {len(others)}"
        )


def auc(labels: Any, probabilities: Any) -> float:
    """Return the area under the ROC curve; 0.5 if all labels are equal."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(labels, probabilities)) if len(set(labels)) > 1 else 0.5


def auprc(labels: Any, probabilities: Any) -> float:
    """Return the average precision: the area under the precision-recall curve."""
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(labels, probabilities))


def _corpus(name: str, label: str) -> Metric:
    """Return the metric BLEU (Papineni et al. 2002) or chrF2 (Popović 2015), in percent."""

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


# Epochs are compared by the first entry here that their records have.
METRICS: dict[str, Metric] = {
    "bleu": _corpus("bleu", "BLEU"),
    "bleu-zh": _corpus("bleu-zh", "BLEU"),  # over Chinese characters; recorded as "bleu"
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
# Values of a configuration's `metric` that compute several entries of METRICS.
GROUPS: dict[str, tuple[str, ...]] = {
    "bleu": ("bleu", "chrf"),
    "bleu-zh": ("bleu-zh", "chrf"),
    "exact": ("exact", "chrf"),
    "symbols": ("per", "wer"),
    "characters": ("exact", "cer"),
}
OF_OUTCOMES = ("auc", "auprc")
EDITS = ("cer", "per")  # rates of edits, of which an answer may have more than its reference tokens
OF_TEXTS = tuple(dict.fromkeys([*GROUPS, *(name for name in METRICS if name not in OF_OUTCOMES)]))


def figures(metric: str) -> dict[str, Metric]:
    """Return the metrics that a configuration's `metric` computes, by their names in records."""
    names = GROUPS.get(metric, (metric,))
    return {name.partition("-")[0]: METRICS[name] for name in names}


def score(metric: str, hypotheses: Texts, references: References) -> dict[str, float]:
    """Return the figures of a configuration's `metric` by name, in percent."""
    return {name: each.score(hypotheses, references) for name, each in figures(metric).items()}


def score_epoch(metric: str, hypotheses: Texts, references: References) -> dict[str, float]:
    """Return the figures of `score`, and by `capped` name those that rank epochs in their place.

    An answer that repeats itself may have ten times as many errors as its reference has tokens, and
    decide alone which epoch is best. So rates of edits rank epochs with at most as many errors of
    an answer as its reference has tokens.
    """
    found = score(metric, hypotheses, references)
    for name in EDITS:
        if name in found and (statistics := METRICS[name].statistics):
            rows = statistics(hypotheses, references)
            sums = sum(min(edits, size) for edits, size in rows), sum(size for _, size in rows)
            found[capped(name)] = percent(sums)
    return found


def capped(name: str) -> str:
    """Return the name under which records have the figure that ranks epochs by a rate of edits."""
    return f"{name}_capped"


def lowered(hypotheses: Texts, references: References) -> tuple[Texts, References]:
    """Return hypotheses and references in lower case.

    If more than a tenth of the references' i have no dot, as in Turkish and Azerbaijani, I is the
    capital of ı, and İ of i.
    """
    dotless, dotted = (sum(text.count(x) for each in references for text in each) for x in "ıi")
    special = {"I": "ı", "İ": "i", "I\u0307": "i"} if 9 * dotless > dotted else {}

    def lower(text: str) -> str:
        for capital in sorted(special, key=len, reverse=True):
            text = text.replace(capital, special[capital])
        return text.lower()

    return [lower(text) for text in hypotheses], [[lower(x) for x in each] for each in references]


def signatures(
    metric: str, hypotheses: Texts, references: References, *, lowercase: bool = False
) -> dict[str, str]:
    """Return the signature of each figure that sacrebleu computes, as `NAME_signature`."""
    result = {}
    for name in GROUPS.get(metric, (metric,)):
        if scorer := sacrebleu_metric(name, lowercase):
            scorer.corpus_score(list(hypotheses), streams(hypotheses, references))
            result[f"{name.partition('-')[0]}_signature"] = str(scorer.get_signature())
    return result


def deciding(record: Mapping[str, object]) -> str | None:
    """Return the name of the text metric that ranks a record's epoch; None if it has none."""
    names = (name for name in METRICS if name not in OF_OUTCOMES)
    return next((name for name in names if name in record), None)


def is_best(record: Mapping[str, Any]) -> bool:
    """Return whether the text metric that ranks a record's epoch has its best figure."""
    name = deciding(record)
    # sacrebleu's best BLEU is 100.00000000000004
    return name is not None and math.isclose(record[name], METRICS[name].best, abs_tol=1e-9)


def bootstrap_interval(
    statistics: Rows | np.ndarray, score: Callable[[Any], float]
) -> tuple[float, float]:
    """Return a 95 % confidence interval from 1,000 bootstrap samples of sentences (Koehn 2004).

    If the K = 2 columns are a count and a total, and the count is 0 or equals the total, all
    samples are equal. Then the open end is the exact bound of N sentences (Clopper and Pearson
    1934): 3.4 % for 0 of 107.

    Args:
        statistics: numbers of each sentence, `(N, K)`.
        score: a function from the sum over sentences, `(K,)`, to the score.

    Returns:
        The lower and the upper bound.

    Raises ValueError if there is no sentence.
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
    # How often each sample draws each sentence: (1000, N).
    times = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), size=1000)
    low, high = np.percentile([score(total) for total in times @ statistics], [2.5, 97.5])
    return float(low), float(high)
