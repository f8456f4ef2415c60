"""All score functions at equal size and training.

Additive (Bahdanau et al. 2014, arXiv 1409.0473), which is Luong's concat; the same with a
normalised scale (Salimans and Kingma 2016, arXiv 1602.07868); dot and general (Luong et al. 2015,
arXiv 1508.04025); scaled dot (Vaswani et al. 2017, arXiv 1706.03762). The models differ in the
score alone: the number of weights in the table differs by its kernels. For dot and scaled dot the
decoder has to be as wide as the memory, which is twice `encoder_units` where the encoder reads
both ways.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from training.command.errors import UserError
from training.command.options import add_beam_width
from training.data import corpus
from training.data.pair_files import Split
from training.data.splits import load_spec, load_split
from training.decode.asked import Search
from training.runs.history import best, read_history
from training.runs.run import Run
from training.score.evaluation import evaluate
from training.studies import shared

SCORES = ("additive", "normalized_additive", "dot", "scaled_dot", "general")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the study's options."""
    shared.add_model_arguments(parser, "tatoeba-en-fr")
    parser.add_argument("--data", metavar="SPEC", help="to score on; default: the models' corpus")
    parser.add_argument("--split", default="dev", help="default: dev")
    add_beam_width(parser)
    parser.add_argument("--lowercase", action="store_true", help="compare in lower case")


def run(options: argparse.Namespace) -> dict:
    """Do the study; return what its last line says."""
    runs = shared.collect(options, {name: [f"attention={name}"] for name in SCORES})
    data = {run.config.data for run in runs.values()}
    if len(data) > 1:
        raise UserError(f"the runs expected the same data. Received: {', '.join(sorted(data))}")
    config = runs[SCORES[0]].config
    if options.data:
        split, read = load_spec(options.data, options.split)
    else:
        split, read = load_split(config, options.split)
    split = corpus.written_like(config.data, split)
    histories, rows = {}, []
    for name, found in runs.items():
        result = score(options, name, found, split)
        histories[name] = read_history(found.files.history)
        rows.append(table_row(name, found, histories[name], result))
    shared.write_table(options.output / "scores.csv", rows)
    draw(rows, histories, options.output / "scores.png")
    return {**read, "scores": rows}


def score(options: argparse.Namespace, name: str, run: Run, split: Split) -> dict:
    """Evaluate a model, or take what was found before."""
    settings = {
        "beam_width": options.beam_width,
        "lowercase": options.lowercase,
        "bootstrap": True,
    }
    print(f"{name}: scoring", flush=True)
    return shared.kept(
        options.output / "evaluations" / f"{name}.json",
        run,
        [settings, split.sources, split.references],
        lambda: evaluate(
            [run],
            split,
            Search(options.beam_width),
            lowercase=options.lowercase,
            bootstrap=True,
        ),
    )


def table_row(name: str, run: Run, history: Sequence[dict], result: dict) -> dict:
    """The table's row of a model."""
    metric = "wer" if "wer" in result else "bleu"
    low, high = result[f"{metric}_interval"]
    return {
        "score": name,
        "weights": run.model.count_params(),
        metric: result[metric],
        "low": low,
        "high": high,
        "aer": result.get("aer"),
        "val_perplexity": best(history, run.config.keep_by)["val_perplexity"],
        "epochs": len(history),
        "training_minutes": round(sum(record["seconds"] for record in history) / 60, 1),
    }


def draw(rows: Sequence[dict], histories: dict[str, list[dict]], path: Path) -> None:
    """Draw the scores with their intervals, and the dev perplexity over the epochs."""
    figure, ((left, right),) = shared.new_figure(1, 2)
    metric = "wer" if "wer" in rows[0] else "bleu"
    for number, row in enumerate(rows):
        ends = [[abs(row[metric] - row["low"])], [abs(row["high"] - row[metric])]]
        left.errorbar([row[metric]], [number], xerr=ends, fmt="o", capsize=3, color=f"C{number}")
        history = histories[row["score"]]
        right.plot(
            [record["epoch"] for record in history],
            [record["val_perplexity"] for record in history],
            color=f"C{number}",
            marker=".",
            label=row["score"],
        )
    left.set_yticks(range(len(rows)), [row["score"] for row in rows])
    left.invert_yaxis()
    left.set_xlabel(f"{metric.upper()}, 95 % interval")
    right.set_xlabel("epoch")
    right.set_ylabel("perplexity on dev")
    right.set_yscale("log")
    right.legend()
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
