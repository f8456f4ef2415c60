"""All attention mechanisms at equal size and training.

Each of docs/mechanisms.md; several heads; sparsemax (Martins and Astudillo 2016, arXiv 1602.02068)
and entmax (Peters et al. 2019, arXiv 1905.05702) in softmax's place; coverage with its loss (See et
al. 2017, arXiv 1704.04368); monotonic attention that decodes by hard choices (Raffel et al. 2017,
arXiv 1704.00784). Where sounds follow letters, as in pronunciations, monotonic alignments are true;
where words change places, as in sentences, they are not: `--preset cmudict` and
`--preset phrasebook-en-fr` show both. For dot and scaled dot the decoder has to be as wide as the
memory, which is twice `encoder_units` where the encoder reads both ways.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path

import keras_attention.mechanisms
from lab import shared
from training.command.errors import UsageError
from training.command.options import add_options as add_common
from training.data.read._sentences import Split
from training.data.read.texts import Texts, load_split
from training.decode.settings import SearchSettings
from training.metrics import METRICS, deciding
from training.runs.files import best, read_history
from training.runs.run import Run
from training.score._evaluation import evaluate

MODELS = {
    **{name: [f"attention={name}"] for name in keras_attention.mechanisms.BY_NAME},
    "heads": ["attention=additive", "attention_heads=4"],
    "sparsemax": ["attention=additive", "distribution=sparsemax"],
    "entmax15": ["attention=additive", "distribution=entmax15"],
    "coverage_loss": ["attention=coverage", "coverage_loss=1"],
    "monotonic_hard": ["attention=monotonic", "attention_options=mode=hard"],
    "chunkwise_hard": ["attention=chunkwise", "attention_options=mode=hard"],
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the study's options."""
    shared.add_models(parser, "phrasebook-en-fr")
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help=f"a model, {', '.join(MODELS)}; may be given several times; default: all",
    )
    shared.add_split(parser)
    add_common(parser, "--limit", "--beam-width")


def run(options: argparse.Namespace) -> dict:
    """Run the study; return the values that its last line prints."""
    names = options.only or list(MODELS)
    if unknown := [name for name in names if name not in MODELS]:
        raise UsageError(f"--only expected some of {', '.join(MODELS)}. Received: {unknown[0]}")
    runs = shared.collect(options, {name: MODELS[name] for name in names})
    split, read = load_split(Texts.of(shared.same_data(runs)), options.split, limit=options.limit)
    rows = []
    for name, found in runs.items():
        history = read_history(found.files.history)
        rows.append(table_row(name, found, history, score(options, name, found, split)))
    shared.write_table(options.output / "mechanisms.csv", rows)
    draw(rows, options.output / "mechanisms.png")
    return {**read, "mechanisms": rows}


def score(options: argparse.Namespace, name: str, run: Run, split: Split) -> dict:
    """Evaluate a model, or take what was found before."""
    print(f"{name}: scoring", flush=True)
    return shared.kept(
        options.output / "evaluations" / f"{name}.json",
        shared.key_of(run, options.beam_width, split.sources, split.references),
        lambda: evaluate([run], split, SearchSettings(options.beam_width), bootstrap=True),
    )


def table_row(name: str, run: Run, history: Sequence[dict], result: dict) -> dict:
    """The table's row of a model."""
    metric = deciding(result)
    low, high = result[f"{metric}_interval"]
    seconds = [record["seconds"] for record in history]
    return {
        "mechanism": name,
        "weights": run.model.count_params(),
        metric: result[metric],
        "low": low,
        "high": high,
        **{name: result[name] for name in METRICS if name in result and name != metric},
        "aer": result.get("aer"),
        "val_perplexity": best(history, run.config.keep_epoch)["val_perplexity"],
        "epochs": len(history),
        # The median: an epoch that waited for other work must not count.
        "seconds_per_epoch": round(statistics.median(seconds), 1),
        "sentences_per_second": result["sentences_per_second"],
    }


def draw(rows: Sequence[dict], path: Path) -> None:
    """Draw scores with their intervals, alignment errors where there are, and times."""
    metric = deciding(rows[0])
    second = "aer" if rows[0]["aer"] is not None else "val_perplexity"
    titles = {
        metric: f"{METRICS[metric].label}, 95 % interval",
        "aer": "alignment error rate",
        "val_perplexity": "perplexity on dev",
        "seconds_per_epoch": "seconds an epoch",
        "sentences_per_second": "sentences translated a second",
    }
    columns = [metric, second, "seconds_per_epoch", "sentences_per_second"]
    figure, (panels,) = shared.new_figure(1, len(columns), width=3.5, height=0.3 * len(rows) + 1.2)
    places = range(len(rows))
    for number, (axes, column) in enumerate(zip(panels, columns, strict=True)):
        values = [row[column] for row in rows]
        if column == metric:
            ends = [
                [abs(row[metric] - row["low"]) for row in rows],
                [abs(row["high"] - row[metric]) for row in rows],
            ]
            axes.errorbar(values, places, xerr=ends, fmt="o", capsize=3)
        else:
            axes.barh(places, values)
        axes.set_yticks(places, [row["mechanism"] for row in rows] if not number else [])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlabel(titles[column])
        axes.grid(axis="x", alpha=0.3)
    figure.savefig(path, dpi=120)
