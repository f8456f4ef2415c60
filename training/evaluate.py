"""Score one run, or an ensemble of several: python -m training.evaluate --run DIR."""

from __future__ import annotations

import argparse
from pathlib import Path

import training.command.extras  # noqa: F401
from training.command.options import (
    add_batch_size,
    add_precision,
    add_replace_unknown,
    add_runs,
    add_search,
    main_guard,
)
from training.command.parser import Parser, count, positive_int
from training.score.reading import METHODS, SYMMETRIZATIONS, Reading


def add_reading_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that decide how links are read from attention weights."""
    default = Reading()
    group = parser.add_argument_group("how links are read from the attention weights, for the AER")
    group.add_argument(
        "--links",
        choices=METHODS,
        default=default.method,
        help="a target word's links: all source words of enough weight, or the one with most; "
        f"default: {default.method}",
    )
    group.add_argument(
        "--link-threshold",
        type=float,
        default=default.threshold,
        metavar="X",
        help=f"enough weight; default: {default.threshold}",
    )
    group.add_argument(
        "--link-shift",
        type=int,
        default=default.shift,
        metavar="N",
        help="the weights of step i + N belong to target token i: 1 or -1 for a model whose "
        "attention is one step off; default: 0",
    )
    group.add_argument(
        "--symmetrize",
        choices=SYMMETRIZATIONS,
        default=default.symmetrize,
        help="what is done with the links read from source to target words; default: none",
    )
    group.add_argument(
        "--link-tension",
        type=float,
        default=default.tension,
        metavar="X",
        help="multiply the weights by exp(-X |i/T - j/S|), so that links keep near the diagonal; "
        "4 to 8 for long sentences; default: 0",
    )


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(
        prog="python -m training.evaluate",
        description="Score a run, or an ensemble of several. The last line is a JSON object.",
        examples=[
            "--run runs/cmudict",
            "--run runs/a --run runs/b --data tsv:test.tsv --bootstrap --output scores.json",
        ],
    )
    add_runs(parser)
    parser.add_argument(
        "--data",
        metavar="SPEC",
        help="a corpus, or files, which are read whole; default: the run's own",
    )
    parser.add_argument("--split", default="test", help="of the corpus; default: test")
    add_search(parser)
    add_replace_unknown(parser)
    add_batch_size(parser)
    add_precision(parser)
    parser.add_argument("--limit", type=positive_int, metavar="N", help="sentences, at random")
    parser.add_argument("--seed", type=count, default=0, help="of --limit")
    parser.add_argument("--lowercase", action="store_true", help="compare in lower case")
    parser.add_argument(
        "--alignments",
        type=Path,
        metavar="FILE",
        help="gold links for the AER, a line for each of the data's: `i-j` (sure) or `ipj` "
        "(possible), source word and target word, from 0",
    )
    parser.add_argument(
        "--max-words", type=positive_int, metavar="N", help="only pairs of at most N words a side"
    )
    add_reading_arguments(parser)
    parser.add_argument("--hypotheses", type=Path, metavar="FILE", help="write the translations")
    parser.add_argument("--bootstrap", action="store_true", help="95 %% confidence intervals")
    parser.add_argument(
        "--baseline",
        action="store_true",
        help="score the translation of the most similar training sentence as well; of an outcome, "
        "models of the last known values",
    )
    parser.add_argument("--by-length", action="store_true", help="BLEU by source length")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="write the JSON here too; of an outcome, the calibration beside it, a PNG",
    )
    options = parser.parse_args(arguments)
    import training.command.startup  # noqa: F401

    from training.score.report import report

    report(options)


if __name__ == "__main__":
    main_guard(main)
