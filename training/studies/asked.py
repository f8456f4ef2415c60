"""The studies by name, and their options: read before anything that takes long is imported."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from training.command.options import add_options
from training.command.parser import positive_int
from training.data.sigmorphon import LANGUAGES


@dataclass(frozen=True)
class Study:
    """A study, whose module in this folder has its name."""

    about: str
    add_options: Callable[[argparse.ArgumentParser], None]
    examples: tuple[str, str]


def _length(parser: argparse.ArgumentParser) -> None:
    _add_models(parser, "tatoeba-en-fr")
    add_options(parser, "--beam-width", "--lowercase")


def _regions(parser: argparse.ArgumentParser) -> None:
    _add_models(parser, "captcha")


def _order(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--preset", default="pbcseq", metavar="NAME", help="preset of the models")
    add_options(parser, "--set")


def _mechanisms(parser: argparse.ArgumentParser) -> None:
    _add_models(parser, "phrasebook-en-fr")
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help="this model, a mechanism or heads, sparsemax, entmax15, coverage_loss, "
        "monotonic_hard, chunkwise_hard; may be given several times; default: all",
    )
    _add_split(parser)
    add_options(parser, "--limit", "--beam-width")


def _gradients(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the study has no options."""


def _alignment(parser: argparse.ArgumentParser) -> None:
    _add_models(parser, "phrasebook-en-fr")


def _names(parser: argparse.ArgumentParser) -> None:
    _add_runs(parser)
    _add_data(parser)
    _add_split(parser)
    add_options(parser, "--beam-width")


def _sigmorphon(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--subtask", choices=LANGUAGES, default="medium", help="the amount of data")
    parser.add_argument(
        "--languages",
        nargs="+",
        metavar="NAME",
        help="languages, as the files name them; default: all",
    )
    parser.add_argument(
        "--seeds", type=positive_int, default=3, metavar="N", help="trainings of each"
    )
    parser.add_argument(
        "--processes",
        type=positive_int,
        default=1,
        metavar="N",
        help="languages at once, on a core each",
    )
    parser.add_argument("--preset", metavar="NAME", help="preset; default: g2p- and the subtask")
    add_options(parser, "--set", "--beam-width")


def _compare(parser: argparse.ArgumentParser) -> None:
    for side, about in (("--run", "the runs of one side"), ("--against", "the runs of the other")):
        parser.add_argument(side, nargs="+", required=True, type=Path, metavar="DIR", help=about)
    _add_data(parser)
    _add_split(parser)
    add_options(parser, "--limit", "--beam-width", "--lowercase")
    parser.add_argument(
        "--samples", type=positive_int, default=2000, metavar="N", help="samples of the bootstrap"
    )


def _add_runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--run",
        dest="runs",
        action="append",
        default=[],
        metavar="NAME=DIR",
        help="a trained model; may be given several times",
    )


def _add_models(parser: argparse.ArgumentParser, preset: str) -> None:
    """Add the options that say which models there are and how the others are trained."""
    _add_runs(parser)
    parser.add_argument(
        "--preset", default=preset, metavar="NAME", help="preset of the models that are not given"
    )
    add_options(parser, "--set")


def _add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", metavar="SPEC", help="default: the runs' training corpus")


def _add_split(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--split", default="dev", metavar="NAME", help="split of the corpus")


STUDIES = {
    "length": Study(
        "BLEU by source length, without attention and with",
        _length,
        ("", "--run none=runs/none --run additive=runs/additive"),
    ),
    "regions": Study(
        "images: score functions, no attention, and CTC at equal training",
        _regions,
        ("", "--preset digits --set epochs=5 --output studies/digits"),
    ),
    "order": Study(
        "histories: the order of events, attention, and what needs neither",
        _order,
        ("", "--preset nafld --output studies/order-nafld"),
    ),
    "mechanisms": Study(
        "every attention mechanism at equal size and training",
        _mechanisms,
        ("", "--preset cmudict --only additive --only monotonic"),
    ),
    "gradients": Study(
        "the gradient's norm over the distance to the loss",
        _gradients,
        ("", "--output /tmp/gradients"),
    ),
    "alignment": Study(
        "alignment error rate by mechanism, and heat-maps",
        _alignment,
        ("", "--run additive=runs/additive --output studies/mine"),
    ),
    "names": Study(
        "whether names that training never saw come through a translation",
        _names,
        ("--run mine=runs/mine", "--run words=runs/words --run copying=runs/copying"),
    ),
    "sigmorphon": Study(
        "spelling to sound in 21 languages, beside the contest's baseline",
        _sigmorphon,
        ("--subtask low", "--languages fre hun --seeds 1"),
    ),
    "compare": Study(
        "whether one recipe is better than another, or chance explains it",
        _compare,
        ("--run runs/a1 runs/a2 --against runs/b1 runs/b2", "--run runs/a --against runs/b"),
    ),
}
