"""Scores of translations, pronunciations and alignments: pure functions.

Each rate is a sum over sentences, so each has a function that gives the sentences' statistics,
from which `bootstrap_interval` draws samples.
"""

from collections.abc import Callable, Sequence, Set
from itertools import zip_longest
from typing import Any

import numpy as np
from sacrebleu.metrics import BLEU, CHRF

Link = tuple[int, int]

LENGTH_BUCKETS = ((1, 5), (6, 10), (11, 15), (16, 20), (21, 30), (31, 40))


def score(
    metric: str,
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    lowercase: bool = False,
) -> dict[str, float | str]:
    """Score by the metric that a configuration names.

    Returns:
        The results of `bleu` and `chrf`; or `exact` and the result of `chrf`; or `per` and `wer`;
        or `exact` and `cer`. Figures are in percent.
    """
    if metric in RATES:
        counts = rate_statistics(metric, hypotheses, references, lowercase=lowercase)
        found: dict[str, float | str] = {
            name: 100 * ratio(count.sum(axis=0)) for name, count in counts.items()
        }
    else:
        tokenize = bleu_tokenization(metric)
        found = bleu(hypotheses, references, lowercase=lowercase, tokenize=tokenize)
    if metric in ("phones", "characters"):
        return found
    return found | chrf(hypotheses, references, lowercase=lowercase)


def bleu_tokenization(metric: str) -> str | None:
    """Return sacrebleu's tokenisation for a metric's name: None is its default, 13a."""
    return "zh" if metric == "bleu-zh" else None


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    lowercase: bool = False,
    tokenize: str | None = None,
) -> dict[str, float | str]:
    """BLEU of a corpus (Papineni et al. 2002) by sacrebleu (Post 2018).

    Args:
        hypotheses: translations, detokenised.
        references: one or more references of each.
        lowercase: whether case is ignored.
        tokenize: sacrebleu's tokenizer, such as "zh" for Chinese; None for its default, "13a".

    Returns:
        `bleu` in percent and sacrebleu's `bleu_signature`.

    Raises:
        ValueError: no hypothesis, or not as many as there are sentences with references.
    """
    metric = BLEU(lowercase=lowercase, tokenize=tokenize)
    score = metric.corpus_score(list(hypotheses), _streams(hypotheses, references))
    return {"bleu": score.score, "bleu_signature": str(metric.get_signature())}


def chrf(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, lowercase: bool = False
) -> dict[str, float | str]:
    """chrF2 in percent (Popović 2015) by sacrebleu, `chrf`, and its `chrf_signature`."""
    metric = CHRF(lowercase=lowercase)
    score = metric.corpus_score(list(hypotheses), _streams(hypotheses, references))
    return {"chrf": score.score, "chrf_signature": str(metric.get_signature())}


def bleu_statistics(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    lowercase: bool = False,
    tokenize: str | None = None,
) -> np.ndarray:
    """N-gram matches, n-gram counts, length and reference length of each sentence: `(N, 10)`."""
    _check_lengths(hypotheses, references)
    metric = BLEU(lowercase=lowercase, tokenize=tokenize, effective_order=True)
    scores = [
        metric.sentence_score(hypothesis, list(texts))
        for hypothesis, texts in zip(hypotheses, references, strict=True)
    ]
    return np.array([[*s.counts, *s.totals, s.sys_len, s.ref_len] for s in scores])


def bleu_of(statistics: np.ndarray) -> float:
    """BLEU in percent of summed `bleu_statistics`, `(10,)`."""
    numbers = [int(number) for number in statistics]
    parts = numbers[:4], numbers[4:8], *numbers[8:]
    return BLEU.compute_bleu(*parts, smooth_method="exp").score  # as `bleu` smooths


def by_length(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    lengths: Sequence[int],
    *,
    lowercase: bool = False,
    tokenize: str | None = None,
    bootstrap: bool = False,
) -> list[dict[str, Any]]:
    """BLEU of the sentences in each of LENGTH_BUCKETS, by words of the source; none if empty.

    Returns:
        For each bucket `words` (such as "6-10"), `sentences`, `bleu` and `references`, how many a
        sentence has in the mean: more of them make BLEU higher; and `interval` with `bootstrap`.
    """
    _check_lengths(hypotheses, lengths)
    options: dict[str, Any] = {"lowercase": lowercase, "tokenize": tokenize}
    rows = []
    for low, high in LENGTH_BUCKETS:
        chosen = [i for i, length in enumerate(lengths) if low <= length <= high]
        if chosen:
            texts = [hypotheses[i] for i in chosen], [references[i] for i in chosen]
            score = bleu(*texts, **options)
            row = {"words": f"{low}-{high}", "sentences": len(chosen), "bleu": score["bleu"]}
            row["references"] = round(sum(map(len, texts[1])) / len(chosen), 2)
            if bootstrap:
                row["interval"] = bootstrap_interval(bleu_statistics(*texts, **options), bleu_of)
            rows.append(row)
    return rows


def phone_errors(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
    """Edits to the closest pronunciation and that one's length, of each word: `(N, 2)`.

    Phones are separated by spaces; of equally close pronunciations the first counts.
    """
    spoken = [[text.split() for text in texts] for texts in references]
    return character_errors([hypothesis.split() for hypothesis in hypotheses], spoken)


def exact_matches(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
    """Whether a reference is matched, and 1, of each: `(N, 2)`."""
    return np.abs(word_errors(hypotheses, references) - (1, 0))


def character_errors(
    hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]
) -> np.ndarray:
    """Edits to the closest reference and that one's length in characters, of each: `(N, 2)`."""
    _check_lengths(hypotheses, references)
    rows = []
    for hypothesis, texts in zip(hypotheses, references, strict=True):
        choices = [(edit_distance(hypothesis, text), len(text)) for text in texts]
        rows.append(min(choices, key=lambda choice: choice[0]))
    return np.array(rows)


def word_errors(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
    """Whether no pronunciation is matched, and 1, of each word: `(N, 2)`."""
    _check_lengths(hypotheses, references)
    rows = []
    for hypothesis, pronunciations in zip(hypotheses, references, strict=True):
        matched = any(hypothesis.split() == p.split() for p in pronunciations)
        rows.append((int(not matched), 1))
    return np.array(rows)


def edit_distance(a: Sequence, b: Sequence) -> int:
    """Insertions, deletions and substitutions that turn one sequence into the other."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, start=1):
            diagonal, row[j] = row[j], min(diagonal + (x != y), row[j] + 1, row[j - 1] + 1)
    return row[-1]


def alignment_errors(
    predicted: Sequence[Set[Link]], sure: Sequence[Set[Link]], possible: Sequence[Set[Link]]
) -> np.ndarray:
    """`|A| + |S| - |A ∩ S| - |A ∩ P|` and `|A| + |S|` of each sentence: `(N, 2)`."""
    _check_lengths(predicted, sure)
    _check_lengths(predicted, possible)
    rows = []
    for a, s, p in zip(predicted, sure, possible, strict=True):
        total = len(a) + len(s)
        rows.append((total - len(a & s) - len(a & (s | p)), total))
    return np.array(rows)


def alignment_error_rate(
    predicted: Sequence[Set[Link]], sure: Sequence[Set[Link]], possible: Sequence[Set[Link]]
) -> float:
    """AER, `1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)` over all sentences (Och and Ney 2003).

    Args:
        predicted: links `(source word, target word)` of each sentence, A.
        sure: links that must be found, S.
        possible: links that may be found, P; sure links are possible.

    Returns:
        A fraction: 0 is perfect, 1 is all wrong.
    """
    return ratio(alignment_errors(predicted, sure, possible).sum(axis=0))


def ratio(statistics: np.ndarray) -> float:
    """First number by the second, 0 where both are 0."""
    errors, total = statistics
    return float(errors / total) if total else 0.0


# Of metrics that are rates: what each counts.
RATES = {
    "phones": {"per": phone_errors, "wer": word_errors},
    "exact": {"exact": exact_matches},
    "characters": {"exact": exact_matches, "cer": character_errors},
}


def rate_statistics(
    metric: str,
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    lowercase: bool = False,
) -> dict[str, np.ndarray]:
    """Each rate's errors or matches, and of how many, of each sentence: `(N, 2)`."""
    if lowercase:
        hypotheses = [text.lower() for text in hypotheses]
        references = [[text.lower() for text in texts] for texts in references]
    return {name: count(hypotheses, references) for name, count in RATES[metric].items()}


def bootstrap_interval(
    statistics: np.ndarray,
    score: Callable[[np.ndarray], float],
    *,
    samples: int = 1000,
    seed: int = 0,
) -> tuple[float, float]:
    """95 % confidence interval by bootstrap resampling of sentences (Koehn 2004).

    Statistics of the sentences are `(N, K)`; `score` gives the score of their sum, `(K,)`.
    """
    count = len(statistics)
    if not count:
        raise ValueError("Expected at least one sentence. Received: none")
    times = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=samples)
    low, high = np.percentile([score(total) for total in times @ statistics], [2.5, 97.5])
    return float(low), float(high)


def _streams(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> list[tuple[str | None, ...]]:
    """References as sacrebleu takes them: the first of all sentences, the second …"""
    _check_lengths(hypotheses, references)
    return list(zip_longest(*references))


def _check_lengths(hypotheses: Sequence, others: Sequence) -> None:
    if not len(hypotheses) or len(hypotheses) != len(others):
        raise ValueError(
            "Expected as many predictions as sentences, at least one. Received: "
            f"{len(hypotheses)} and {len(others)}"
        )
