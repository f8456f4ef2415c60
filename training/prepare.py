"""Tokenize once, to train later: python -m training.prepare --data DATA --corpus DIR.

With `--corpus`, the command writes a corpus of any size as token ids; `--data prepared:DIR` trains
from them. Without `--corpus`, it writes a run directory: the configuration, the tokenizers and the
token ids of all pairs. `training.train --resume` trains the run, also without TensorFlow.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from training.command.errors import ConfigError, UsageError
from training.command.native import need, start_tensorflow
from training.command.options import Parser, main_guard, positive_int
from training.presets._arguments import add_configuration, default_output
from training.presets._options import configuration
from training.runs.files import RunFiles
from training.sources.kinds import SOURCE_KINDS


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(
        prog="python -m training.prepare",
        description="Tokenize once, to train later. With --corpus it writes text of any size as "
        "token ids, for training.train --data prepared:DIR. Otherwise it makes a run directory, "
        "which training.train --resume trains, also on a machine without TensorFlow.",
        examples=[
            "--data tsv:pairs.tsv.gz --corpus corpora/pairs",
            "--preset cmudict --output runs/cmudict",
        ],
    )
    add_configuration(parser)
    parser.add_argument("--output", type=Path, metavar="DIR", help="the run; default: runs/NAME")
    group = parser.add_argument_group("a corpus of any size, tokenized once")
    new = "new folder for the corpus, which --data prepared:DIR trains on; no run is made"
    group.add_argument("--corpus", type=Path, metavar="DIR", help=new)
    group.add_argument(
        "--workers", type=positive_int, metavar="N", help="processes; default: one for each core"
    )
    others = "run or prepared corpus whose tokenizers are taken; default: new ones are trained"
    group.add_argument("--tokenizers", type=Path, metavar="DIR", help=others)
    options = parser.parse_args(arguments)
    if options.corpus:
        if options.output:
            raise UsageError("--corpus makes no run. Remove --output")
        started, config = time.monotonic(), configuration(options)
        need("training")
        from training.data.read.texts import Texts
        from training.data.tokens._encoding import (
            Tokenizing,  # without TensorFlow, 600 MB a worker
            prepare_corpus,
        )

        texts, tokenizing = Texts.of(config), Tokenizing.of(config)
        manifest = prepare_corpus(
            options.corpus, texts, tokenizing, options.tokenizers, options.workers
        ).manifest
        for reason, number in manifest.left_out.items():
            print(f"left out: {number:,} {reason}")
        counts = {name: getattr(manifest, name) for name in ("pairs", "lines", "unusable")}
        seconds = round(time.monotonic() - started, 1)
        print(json.dumps({"corpus": str(options.corpus), **counts, "seconds": seconds}))
        return
    for name in ("workers", "tokenizers"):
        if getattr(options, name):
            raise UsageError(f"--{name} works only with --corpus. Remove it, or add --corpus DIR")
    output = options.output or default_output(options)
    with RunFiles(output).locked():
        RunFiles(output).check_free()
        config = configuration(options)
    if not SOURCE_KINDS[config.source].tokens:
        raise ConfigError(f"training.prepare needs texts, but source is {config.source}")
    need("training")
    start_tensorflow()
    from training.runs._start import prepare_run

    print(json.dumps({"run": str(output), **prepare_run(config, output)}))


if __name__ == "__main__":
    main_guard(main)
