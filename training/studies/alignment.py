"""Alignment error rate by mechanism, and heat-maps.

Links are read from the weights of models that were never shown any, while they are made to say
the reference, and compared with gold links (Och and Ney 2003): of the built-in phrasebook's test
sentences, and of the Alibi tales, all pairs and those of at most 15 words a side. Each way to
read links (threshold or largest weight, a step earlier or later, symmetrised or not) is tried; the
one that is best for a model on the phrasebook's dev sentences is marked as chosen, and nothing is
chosen on what is reported. A plain diagonal stands beside.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from keras_attention import plot_attention
from training.data import corpus
from training.data.pair_files import Split
from training.decode.texts import forced_attention
from training.errors import UserError
from training.runs.run import Run, load_run
from training.score import links, metrics
from training.score.links import Reading
from training.studies import shared

MODELS = {
    "additive": ["attention=additive", "order=luong"],
    "general": ["attention=general", "order=luong"],
    "scaled_dot": ["attention=scaled_dot", "order=luong"],
    "additive, bahdanau": ["attention=additive", "order=bahdanau"],
}
SHORT = 15  # words
DEV_SENTENCES = 300
READINGS = tuple(
    Reading(method, threshold, shift, symmetrize)
    for method, threshold in (
        ("argmax", 0.0),
        *(("threshold", x) for x in (0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)),
    )
    for shift in (-1, 0, 1)
    for symmetrize in links.SYMMETRIZATIONS
)
# Pairs in which words change places.
EXAMPLES = {
    "fr": (
        ("She is eating a green apple.", "Elle mange une pomme verte."),
        ("He has a small black dog.", "Il a un petit chien noir."),
    ),
    "de": (("He has eaten a green apple.", "Er hat einen grünen Apfel gegessen."),),
    "es": (("She is eating a green apple.", "Ella está comiendo una manzana verde."),),
    "zh": (("She is eating a green apple.", "她在吃一个绿苹果。"),),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the study's options."""
    shared.add_model_arguments(parser, "phrasebook-en-fr")
    parser.epilog = (
        "Where no --run is given, models are trained with the preset: "
        f"{'; '.join(MODELS)} (in Luong's order unless said)."
    )


def run(options: argparse.Namespace) -> dict:
    """Do the study; return what its last line says."""
    given = shared.given_runs(options)
    if given:
        runs = {name: load_run(path) for name, path in given.items()}
    else:
        runs = shared.collect(options, MODELS)
    for name, found in runs.items():
        if found.config.attention == "none":
            raise UserError(f"{name} expected a model that attends: {found.path} does not")
    rows = []
    for name, found in runs.items():
        own, chosen = measure(name, found)
        rows += own
        print(f"{name}: links are read so: {chosen.describe()}", flush=True)
    if rows:
        shared.write_table(options.output / "readings.csv", rows, printed=False)
    best = [row for row in rows if row["chosen"] == "yes"]
    if best:
        shared.write_table(options.output / "alignment.csv", best)
        draw(best, options.output / "alignment.png")
    draw_heat_maps(runs, options.output / "heat-maps.png")
    return {"aer": best}


def measure(name: str, run: Run) -> tuple[list[dict], Reading]:
    """Try every reading on every set: the rows of the table, and the reading that dev chooses."""
    language = run.config.data[-2:]
    chosen = Reading()
    phrasebook = f"phrasebook-en-{language}"
    if phrasebook in corpus.NAMES:
        dev = corpus.load(phrasebook, "dev", limit=DEV_SENTENCES)
        weights = links.attend([run], dev)
        chosen = min(READINGS, key=lambda reading: _errors(dev, weights, reading)[0])
    rows = []
    for set_name, split in gold_sets(language, run.config.data):
        weights = links.attend([run], split)
        diagonal = metrics.alignment_error_rate(links.diagonal(split), *split.gold())
        for reading in dict.fromkeys((*READINGS, chosen)):
            aer, errors = _errors(split, weights, reading)
            interval: tuple[float | None, float | None] = (None, None)
            if reading == chosen:
                interval = metrics.bootstrap_interval(errors, metrics.ratio)
            rows.append(
                {
                    "model": name,
                    "attention": run.config.attention,
                    "order": run.config.order,
                    "set": set_name,
                    "pairs": len(split.sources),
                    "links": reading.method,
                    "threshold": reading.threshold if reading.method == "threshold" else None,
                    "shift": reading.shift,
                    "symmetrized": reading.symmetrize,
                    "chosen": "yes" if reading == chosen else "no",
                    "aer": aer,
                    "low": interval[0],
                    "high": interval[1],
                    "diagonal": diagonal,
                }
            )
    return rows, chosen


def gold_sets(language: str, data: str) -> Iterator[tuple[str, Split]]:
    """Sets with gold links that a model of this target language can be tried on."""
    if f"phrasebook-en-{language}" in corpus.NAMES:
        yield "phrasebook", corpus.load(f"phrasebook-en-{language}", "test")
    if language == "fr" and not data.startswith("phrasebook"):
        alibi = corpus.load("alibi-en-fr", "test")
        yield f"alibi, at most {SHORT} words", links.at_most(alibi, SHORT)
        yield "alibi, all", alibi


def _errors(
    split: Split, weights: Sequence[links.WordWeights], reading: Reading
) -> tuple[float, np.ndarray]:
    errors = metrics.alignment_errors(links.read(weights, reading), *split.gold())
    return metrics.ratio(errors.sum(axis=0)), errors


def draw(rows: Sequence[dict], path: Path) -> None:
    """Draw the rates with their intervals, a panel for each set; a line is the diagonal."""
    sets = list(dict.fromkeys(row["set"] for row in rows))
    models = list(dict.fromkeys(row["model"] for row in rows))
    height = 1.5 + 0.5 * len(models)
    figure, (panels,) = shared.new_figure(1, len(sets), height=height)
    for axes, set_name in zip(panels, sets, strict=True):
        own = [row for row in rows if row["set"] == set_name]
        for row in own:
            ends = [[row["aer"] - row["low"]], [row["high"] - row["aer"]]]
            at = models.index(row["model"])
            axes.errorbar([row["aer"]], [at], xerr=ends, fmt="o", color="C0", capsize=3)
        axes.axvline(own[0]["diagonal"], color="gray", linestyle="--", label="diagonal")
        axes.set_yticks(range(len(models)), models)
        axes.set_ylim(len(models) - 0.5, -0.5)
        axes.set_xlim(left=0)
        axes.set_title(f"{set_name} ({own[0]['pairs']} pairs)")
        axes.set_xlabel("AER, 95 % interval")
        axes.grid(alpha=0.3)
    panels[0].legend()
    figure.savefig(path, dpi=120)


def draw_heat_maps(runs: dict[str, Run], path: Path) -> None:
    """Draw where the models look in sentences with reordering, a column for each model."""
    maps = {}
    for name, run in runs.items():
        pairs = EXAMPLES.get(run.config.data[-2:], ())
        if pairs:
            sources, targets = zip(*pairs, strict=True)
            maps[name] = forced_attention([run], sources, targets)
    if not maps:
        return
    lines = max(map(len, maps.values()))
    figure, panels = shared.new_figure(lines, len(maps), height=4.5)
    for column, (name, found) in enumerate(maps.items()):
        for line, attended in enumerate(found):
            axes = panels[line, column]
            tokens = attended.source_tokens, attended.target_tokens
            plot_attention(*tokens, attended.weights, title=name, ax=axes)
        for axes in panels[len(found) :, column]:
            axes.set_axis_off()
    figure.savefig(path, dpi=120)
