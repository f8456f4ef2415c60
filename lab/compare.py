"""Runs compared with a first one: whether chance explains the difference.

Approximate randomisation (Riezler and Maxwell 2005), by `sacrebleu.significance`, exchanges
sentences between two runs, and gives the probability of such a difference where there is none.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from sacrebleu.metrics.base import Metric, Score
from sacrebleu.significance import PairedTest

from lab import shared
from training import metrics
from training.command.errors import UserError
from training.command.options import add_options as add_common
from training.config.schema import Config
from training.data.read import texts as corpus
from training.data.read._sentences import Split
from training.data.read.texts import Texts, load_split
from training.decode.settings import SearchSettings
from training.runs.run import load_run

LEVEL = 0.05  # of the verdict


class Counted(Metric):
    """A figure of `training.metrics` as sacrebleu's tests take it."""

    def __init__(self, name: str, metric: metrics.Metric) -> None:
        super().__init__()
        self.name, self.metric = name, metric
        self.num_refs = 1  # of the signature, which is not shown

    def _extract_corpus_statistics(self, hypotheses: Any, references: Any) -> Any:
        texts = [
            [text for text in each if text is not None] for each in zip(*references, strict=True)
        ]
        return self.metric.statistics(hypotheses, texts)

    def _compute_score_from_stats(self, stats: Any) -> Score:
        return Score(self.name, self.metric.value(stats))

    def _aggregate_and_compute(self, stats: Any) -> Score:
        return self._compute_score_from_stats(np.sum(stats, axis=0))

    _preprocess_segment = _extract_reference_info = _compute_segment_statistics = None


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the study's options."""
    add = parser.add_argument
    add("--run", nargs="+", required=True, type=Path, metavar="DIR", help="runs")
    add("--against", required=True, type=Path, metavar="DIR", help="the run to compare them with")
    shared.add_data(parser)
    add_common(parser, "--limit", "--beam-width", "--lowercase")


def run(options: argparse.Namespace) -> dict:
    """Run the study; return the values that its last line prints."""
    runs = [load_run(path) for path in (options.against, *options.run)]
    metric = runs[0].config.metric
    for other in runs[1:]:
        if other.config.metric != metric:
            raise UserError(f"{other.path} expected a run scored by {metric}")
    split = load(runs[0].config, options)
    systems = []
    for number, each in enumerate(runs):
        file = options.output / "translations" / f"{number}.json"
        translate = shared.make_kept_translator(each, SearchSettings(options.beam_width))
        systems.append((str(each.path), translate(str(each.path), split.sources, file)))
    rows = compare(metric, systems, split.references, options.lowercase)
    shared.write_table(options.output / "compare.csv", rows)
    return {"compared": rows}


def load(config: Config, options: argparse.Namespace) -> Split:
    """Read the sentences that all translate: those that training left out, if none are named."""
    if not options.data:
        return load_split(Texts.of(config), options.split, limit=options.limit)[0]
    return corpus.load(options.data, options.split, limit=options.limit, script_of=config.data)


def compare(
    metric: str,
    systems: Sequence[tuple[str, Sequence[str]]],
    references: Sequence[Sequence[str]],
    lowercase: bool = False,
    samples: int = 2000,
) -> list[dict[str, Any]]:
    """Compare systems, names with hypotheses, with the first: a row for each figure and system."""
    if lowercase:
        systems = [(name, [text.lower() for text in texts]) for name, texts in systems]
        references = [[text.lower() for text in texts] for texts in references]
    figures = {name: each for name, each in metrics.figures(metric).items() if each.statistics}
    compared = {name: Counted(name, each) for name, each in figures.items()}
    test = PairedTest(
        list(systems), compared, list(zip_longest(*references)), "ar", n_samples=samples
    )
    _, results = test()
    rows = []
    for name, each in figures.items():
        first = results[name][0].score
        for (system, _), result in zip(systems, results[name], strict=True):
            verdict, p = "", result.p_value
            if p is not None:
                p = float(p) if result.score != first else 1.0  # as sacrebleu counts, nearly 0
                is_better = each.key(result.score) > each.key(first)
                verdict = "better" if is_better else "worse"
                verdict = verdict if p < LEVEL else "chance may explain it"
            rows.append(
                {
                    "score": each.label,
                    "run": system,
                    "value": float(result.score),
                    "p": p,
                    "verdict": verdict,
                }
            )
    return rows
