"""Alignment error rate by mechanism, and heat-maps.

Links are read from the weights of models that were never shown any, while they are made to say
the reference, and compared with gold links (Och and Ney 2003): of the built-in phrasebook's test
sentences, and of the Alibi tales, all pairs and those of at most 15 words a side. Each way to
read links (threshold or largest weight, a step earlier or later, symmetrised or not, with a prior
that keeps them near the diagonal or without) is tried. Which is best for a model is chosen on
other sentences of the same kind: of the phrasebook on its dev sentences, of the tales each half on
the other half. A plain diagonal stands beside. Where no --run is given, models are trained with the
preset: additive, general and scaled dot attention in Luong's order, and additive in Bahdanau's.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from keras_attention import plot_attention
from lab import alibi, readings, shared
from lab.readings import SYMMETRIZATIONS, Reading
from training.command.errors import UserError
from training.data.read import texts as corpus
from training.data.read._sentences import Split
from training.decode.texts import make_attender
from training.metrics import bootstrap_interval, ratio
from training.runs.run import Run, load_run
from training.score import _links as links
from training.score._links import Attender

MODELS = {
    "additive": ["attention=additive", "order=luong"],
    "general": ["attention=general", "order=luong"],
    "scaled_dot": ["attention=scaled_dot", "order=luong"],
    "additive, bahdanau": ["attention=additive", "order=bahdanau"],
}
SHORT = 15  # words
DEV_SENTENCES = 300
BY_HALVES = "chosen by halves"
READINGS = tuple(
    Reading(method, threshold, shift, symmetrize, tension)
    for method, threshold in (
        ("argmax", 0.0),
        *(("threshold", x) for x in (0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)),
    )
    for shift in (-1, 0, 1)
    for symmetrize in SYMMETRIZATIONS
    for tension in (0.0, 4.0, 8.0)
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


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the study's options."""
    shared.add_models(parser, "phrasebook-en-fr")


def run(options: argparse.Namespace) -> dict:
    """Run the study; return the values that its last line prints."""
    given = shared.given_runs(options)
    if given:
        runs = {name: load_run(path) for name, path in given.items()}
    else:
        runs = shared.collect(options, MODELS)
    for name, found in runs.items():
        if found.config.attention == "none":
            raise UserError(f"{name} expected a model that attends: {found.path} does not")
    # Each is compiled once.
    attenders = {name: make_attender([found]) for name, found in runs.items()}
    rows = [row for name, found in runs.items() for row in measure(name, found, attenders[name])]
    if rows:
        shared.write_table(options.output / "readings.csv", rows, printed=False)
    best = [row for row in rows if row["chosen"] == "yes"]
    if best:
        shared.write_table(options.output / "alignment.csv", best)
    draw_heat_maps(runs, attenders, options.output / "heat-maps.png")
    return {"aer": best}


def measure(name: str, run: Run, attender: Attender) -> list[dict]:
    """Try every reading on every set, and what is chosen for it: rows of the table."""
    rows = []
    for set_name, split, dev in gold_sets(run.config.data):
        errors = errors_by_reading(attender, split)
        results: list[tuple[Reading | None, np.ndarray]] = [*errors.items()]
        diagonal = links.alignment_errors(links.diagonal(split), split.sure, split.possible)
        common = {
            "model": name,
            "attention": run.config.attention,
            "order": run.config.order,
            "set": set_name,
            "pairs": len(split.sources),
            "diagonal": ratio(diagonal.sum(axis=0)),
        }
        best = None
        if dev:
            best = best_reading(errors_by_reading(attender, dev))
            chosen = [best]
        else:
            chosen, crossed = choose_by_halves(errors)
            results.append((None, crossed))
        rows += [common | result_row(*item, chosen=item[0] == best) for item in results]
        said = "; the other half: ".join(reading.describe() for reading in chosen)
        print(f"{name}, {set_name}: links are read so: {said}", flush=True)
    return rows


def errors_by_reading(attender: Attender, split: Split) -> dict[Reading, np.ndarray]:
    """Return `links.alignment_errors` of a model's links by each reading, `(sentences, 2)`."""
    weights, gold = links.attend(attender, split), (split.sure, split.possible)
    return {
        reading: links.alignment_errors([readings.read(one, reading) for one in weights], *gold)
        for reading in READINGS
    }


def best_reading(errors: Mapping[Reading, np.ndarray]) -> Reading:
    """Return the reading of the lowest AER."""
    return min(errors, key=lambda reading: ratio(errors[reading].sum(axis=0)))


def choose_by_halves(errors: Mapping[Reading, np.ndarray]) -> tuple[list[Reading], np.ndarray]:
    """Choose the reading of each half of the sentences on the other: both, and their errors."""
    count = len(next(iter(errors.values())))
    halves = slice(None, count // 2), slice(count // 2, None)
    chosen = [
        best_reading({reading: own[other] for reading, own in errors.items()})
        for other in reversed(halves)
    ]
    crossed = [errors[reading][half] for reading, half in zip(chosen, halves, strict=True)]
    return chosen, np.concatenate(crossed)


def result_row(reading: Reading | None, errors: np.ndarray, *, chosen: bool) -> dict:
    """Return how links were read, None by halves, and how many are wrong.

    A chosen reading has an interval.
    """
    low, high = bootstrap_interval(errors, ratio) if chosen else (None, None)
    return {
        "links": reading.method if reading else BY_HALVES,
        "threshold": reading.threshold if reading and reading.method == "threshold" else None,
        "shift": reading and reading.shift,
        "symmetrized": reading and reading.symmetrize,
        "tension": reading and reading.tension,
        "chosen": "yes" if chosen else "no",
        "aer": ratio(errors.sum(axis=0)),
        "low": low,
        "high": high,
    }


def gold_sets(data: str) -> Iterator[tuple[str, Split, Split | None]]:
    """Sets with gold links that a model trained on this data can be tried on.

    Yields:
        Name, sentences, and those to choose a reading on; None where it is chosen by halves.
    """
    language = data[-2:]
    phrasebook = f"phrasebook-en-{language}"
    if phrasebook in corpus.NAMES:
        dev = corpus.load(phrasebook, "dev", limit=DEV_SENTENCES)
        yield "phrasebook", corpus.load(phrasebook, "test"), dev
    if language == "fr" and not data.startswith("phrasebook"):
        tales = alibi.load()
        yield f"alibi, at most {SHORT} words", readings.at_most(tales, SHORT), None
        yield "alibi, all", tales, None


def draw_heat_maps(runs: dict[str, Run], attenders: dict[str, Attender], path: Path) -> None:
    """Draw where the models look in sentences with reordering, a column for each model."""
    maps = {}
    for name, run in runs.items():
        pairs = EXAMPLES.get(run.config.data[-2:], ())
        if pairs:
            sources, targets = zip(*pairs, strict=True)
            maps[name] = attenders[name](sources, targets)
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
