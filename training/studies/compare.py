"""Two recipes compared: whether one is better, or chance explains the difference.

Two sides of one or more runs each, the seeds of a recipe, translate the same sentences. Two tests
hold the difference against chance. The paired bootstrap (Koehn 2004) draws sentences, and seeds of
each side, and gives an interval of the difference. Approximate randomisation (Riezler and Maxwell
2005) exchanges sentences between the sides, and gives the probability of such a difference where
there is none. The last line before the JSON is the verdict: a side is better where both say so.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from training.command.errors import UserError
from training.config.schema import Config
from training.data import corpus
from training.data.pair_files import Split
from training.data.splits import load_split
from training.decode.asked import Search
from training.runs.run import Run, load_run
from training.score import metrics
from training.studies import shared

LEVEL = 0.05  # of the verdict
_ROUNDING = 1e-9  # of sums in another order: as large a difference counts
SIDES = ("run", "against")
Score = Callable[[np.ndarray], float]


@dataclass(frozen=True)
class Difference:
    """One side's lead over the other, and the part of chance in it.

    Attributes:
        scores: of each run of both sides.
        difference: of the sides' mean scores, above 0 where the first has more.
        low: of an interval of 95 % around it.
        high: of the same.
        p: probability of as large a difference, up or down, where none is.
    """

    scores: tuple[list[float], list[float]]
    difference: float
    low: float
    high: float
    p: float

    @property
    def is_chance(self) -> bool:
        """Whether chance may explain it."""
        return self.low <= 0 <= self.high or self.p >= LEVEL


def run(options: argparse.Namespace) -> dict:
    """Do the study; return what its last line says."""
    paths = {side: getattr(options, side) for side in SIDES}
    first = load_run(paths["run"][0]).config
    split = _load(first, options)
    found = {
        side: [
            _statistics(load_run(path), first.metric, split, options, f"{side}-{number}")
            for number, path in enumerate(paths[side], 1)
        ]
        for side in SIDES
    }
    result, rows = {}, []
    for name, score, higher_is_better in _scores(first.metric):
        sides = [np.stack([statistics[name] for statistics in found[side]]) for side in SIDES]
        ours, theirs = sides
        difference = compare(ours, theirs, score, options.samples)
        result[name] = _summary(name, difference, higher_is_better, len(split.sources))
        rows += [
            {"score": name, "side": side, "run": str(path), "value": value}
            for side, values in zip(SIDES, difference.scores, strict=True)
            for path, value in zip(paths[side], values, strict=True)
        ]
    shared.write_table(options.output / "compare.csv", rows)
    for summary in result.values():
        print(summary["verdict"])
    return result


def compare(
    ours: np.ndarray, theirs: np.ndarray, score: Score, samples: int, seed: int = 0
) -> Difference:
    """Hold the difference of two sides against chance.

    Statistics of the sentences are `(runs, N, k)` for each side; `score` is of their sums `(k,)`.
    As many samples are drawn for the bootstrap as for the randomisation.
    """
    if ours.shape[1:] != theirs.shape[1:]:
        raise ValueError(f"Expected the same sentences. Received: {ours.shape} and {theirs.shape}")
    rng = np.random.default_rng(seed)
    sides = ours, theirs
    count = ours.shape[1]

    def mean(side: np.ndarray) -> float:
        return float(np.mean([score(statistics) for statistics in side.sum(axis=1)]))

    difference = mean(ours) - mean(theirs)
    drawn = []
    for _ in range(samples):
        sentences = rng.integers(count, size=count)
        seeds = [rng.integers(len(side), size=len(side)) for side in sides]
        weight = np.bincount(sentences, minlength=count)
        a, b = (
            np.mean([score(weight @ side[one]) for one in chosen])
            for side, chosen in zip(sides, seeds, strict=True)
        )
        drawn.append(a - b)
    low, high = np.quantile(drawn, [LEVEL / 2, 1 - LEVEL / 2])
    # Runs are paired in turn, each of a side as often as the others, as in its mean.
    pairs = math.lcm(*map(len, sides))
    ours, theirs = (np.stack([side[i % len(side)] for i in range(pairs)]) for side in sides)
    as_large = 0
    for _ in range(samples):
        kept = rng.integers(2, size=count).astype(bool)[:, None]
        shuffled = mean(np.where(kept, ours, theirs)) - mean(np.where(kept, theirs, ours))
        as_large += abs(shuffled) >= abs(difference) - _ROUNDING
    return Difference(
        (_each(score, sides[0]), _each(score, sides[1])),
        difference,
        float(low),
        float(high),
        (as_large + 1) / (samples + 1),
    )


def _load(config: Config, options: argparse.Namespace) -> Split:
    """Read the sentences that both sides translate: those that training left out, if none are."""
    if not options.data:
        return load_split(config, options.split, limit=options.limit)[0]
    split = corpus.load(options.data, options.split, limit=options.limit)
    return corpus.written_like(config.data, split)


def _scores(metric: str) -> list[tuple[str, Score, bool]]:
    """Return name, function and direction of what a metric compares."""
    rates = metrics.RATES.get(metric)
    if rates is None:
        return [("bleu", metrics.bleu_of, True)]
    return [(name, metrics.ratio, name == "exact") for name in rates]


def _statistics(
    found: Run, metric: str, split: Split, options: argparse.Namespace, name: str
) -> dict[str, np.ndarray]:
    """Translate with one run; return the statistics of its sentences."""
    if found.config.metric != metric:
        raise UserError(f"{found.path} expected a run scored by {metric}: it has another metric")

    file = options.output / "translations" / f"{name}.json"
    asked = Search(options.beam_width)
    hypotheses = shared.make_kept_translator(found, asked)(str(found.path), split.sources, file)
    if metric in metrics.RATES:
        counts = metrics.rate_statistics(
            metric, hypotheses, split.references, lowercase=options.lowercase
        )
        return {name: count * (100, 1) for name, count in counts.items()}
    statistics = metrics.bleu_statistics(
        hypotheses,
        split.references,
        lowercase=options.lowercase,
        tokenize=metrics.bleu_tokenization(metric),
    )
    return {"bleu": statistics}


def _summary(
    name: str, found: Difference, higher_is_better: bool, sentences: int
) -> dict[str, Any]:
    ours, theirs = (float(np.mean(scores)) for scores in found.scores)
    seeds = " and ".join(str(len(scores)) for scores in found.scores)
    figures = (
        f"{name.upper()} {ours:.2f} against {theirs:.2f}, {found.difference:+.2f} "
        f"(95 %: {found.low:+.2f} to {found.high:+.2f}; p = {found.p:.3f}; {seeds} runs, "
        f"{sentences:,} sentences)"
    )
    if found.is_chance:
        verdict = f"Chance may explain the difference: {figures}"
    else:
        better = (found.difference > 0) == higher_is_better
        verdict = f"--run is {'better' if better else 'worse'} than --against: {figures}"
    if min(map(len, found.scores)) < 2:
        verdict += ". With one run a side, how seeds differ is not in it"
    return {
        "verdict": verdict,
        "run": found.scores[0],
        "against": found.scores[1],
        "difference": found.difference,
        "interval": [found.low, found.high],
        "p": found.p,
    }


def _each(score: Callable[[np.ndarray], float], side: np.ndarray) -> list[float]:
    return [score(statistics) for statistics in side.sum(axis=1)]
