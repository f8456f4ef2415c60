"""Tokenise once, to train later: python -m training.prepare --data SPEC --corpus DIR.

`--corpus` writes a corpus of any size as token ids, which `--data prepared:DIR` trains from.
Without it, a run directory is made ready for `training.train_arrays`, where there is no TensorFlow:
it gets the configuration, the tokenizers and the token ids of all pairs.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import training.command.extras  # noqa: F401
from training.command.errors import UsageError
from training.command.options import main_guard
from training.command.parser import Parser, count, number_from_0, positive_int
from training.config.schema import Config
from training.presets.options import add_configuration, configuration, default_output

# A corpus is prepared without TensorFlow, whose 600 MB worker processes would have, too.


def _add_corpus(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("a corpus of any size, tokenized once")
    group.add_argument(
        "--corpus",
        type=Path,
        metavar="DIR",
        help="new folder for the corpus, which --data prepared:DIR trains on; no run is made; "
        "--data may be tsv:- for standard input, and files may end in .gz or .zst",
    )
    group.add_argument(
        "--workers", type=positive_int, metavar="N", help="processes; default: one for each core"
    )
    group.add_argument(
        "--tokenizers",
        type=Path,
        metavar="DIR",
        help="run or prepared corpus whose tokenizers are taken; default: new ones are trained",
    )
    group.add_argument(
        "--sample",
        type=positive_int,
        default=10,
        metavar="N",
        help="millions of characters, drawn at random, that each tokenizer is trained on; a "
        "million takes 20 MB of memory",
    )
    group.add_argument(
        "--max-characters",
        type=count,
        default=0,
        metavar="N",
        help="leave out pairs with a longer side; 0 for none",
    )
    group.add_argument(
        "--max-ratio",
        type=number_from_0,
        default=0.0,
        metavar="X",
        help="leave out pairs with one side X times as long as the other, in characters; "
        "0 for none",
    )
    group.add_argument(
        "--no-identical", action="store_true", help="leave out pairs whose sides are the same"
    )
    group.add_argument("--no-duplicates", action="store_true", help="leave out repeated pairs")
    for side in ("source", "target"):
        group.add_argument(
            f"--{side}-script",
            default="",
            metavar="NAME",
            help=f"leave out pairs with less than half of the {side}'s letters in this script: "
            "LATIN, CYRILLIC, CJK, HIRAGANA+KATAKANA+CJK …",
        )


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(
        prog="python -m training.prepare",
        description="Tokenize once, to train later. With --corpus it writes text of any size as "
        "token ids, for training.train --data prepared:DIR. Otherwise it makes a run directory for "
        "training.train_arrays, which trains on JAX or PyTorch without TensorFlow. For JAX add "
        "--set length_multiple=8 or so: JAX compiles the step anew for each length.",
        examples=[
            "--data tsv:pairs.tsv.gz --corpus corpora/pairs",
            "--preset cmudict --output runs/cmudict",
        ],
    )
    add_configuration(parser)
    parser.add_argument("--output", type=Path, metavar="DIR", help="the run; default: runs/NAME")
    _add_corpus(parser)
    options = parser.parse_args(arguments)
    if options.corpus:
        if options.output:
            raise UsageError("--corpus expected no --output, for it makes no run")
        print(json.dumps(_prepare_corpus(options)))
        return
    import training.command.startup  # noqa: F401

    from training.bulk.run import prepare_run

    output = options.output or default_output(options)
    print(json.dumps({"run": str(output), **prepare_run(configuration(options), output)}))


def _prepare_corpus(options: argparse.Namespace) -> dict[str, Any]:
    """Write a prepared corpus; return what is printed of it."""
    from training.bulk.cleaning import Filters
    from training.bulk.corpora import Plan, prepare_corpus

    filters = Filters(
        **{name: getattr(options, name) for name in Filters.__dataclass_fields__},
    )
    plan = Plan(
        filters, options.workers or os.cpu_count() or 1, options.sample * 10**6, options.tokenizers
    )
    configure: Callable[[int], Config] | None = None
    if options.preset:
        config = configuration(options)
    else:
        config = configuration(options, pairs=0)  # how many there are shows later

        def configure(pairs: int) -> Config:
            return configuration(options, pairs=pairs)

    manifest = prepare_corpus(options.corpus, config, plan, configure)
    for reason, number in manifest["left_out"].items():
        print(f"left out: {number:,} {reason}")
    shown = ("pairs", "lines", "unusable", "seconds")
    return {"corpus": str(options.corpus), **{name: manifest[name] for name in shown}}


if __name__ == "__main__":
    main_guard(main)
