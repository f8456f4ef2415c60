"""Translate line by line: python -m training.translate --run DIR < source > target."""

from __future__ import annotations

import training.quiet  # noqa: F401

import argparse
import sys
from pathlib import Path

import keras

from training.cli import main_guard, positive_int
from training.inference import make_translator
from training.run import load_ensemble


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m training.translate",
        description="Translate standard input to standard output, line by line.",
    )
    parser.add_argument(
        "--run", dest="runs", action="append", required=True, metavar="DIR", type=Path
    )
    parser.add_argument("--beam-width", type=positive_int, default=5, metavar="N")
    parser.add_argument("--length-penalty", type=float, default=1.0, metavar="X")
    parser.add_argument("--batch-size", type=positive_int, default=64, metavar="N")
    options = parser.parse_args(arguments)
    translate = make_translator(
        load_ensemble(options.runs),
        beam_width=options.beam_width,
        length_penalty=options.length_penalty,
        batch_size=options.batch_size,
    )
    lines = sys.stdin.buffer.read().decode("utf-8", errors="replace").split("\n")
    if lines[-1] == "":
        lines.pop()
    progress = keras.utils.Progbar(len(lines), unit_name="line")
    verbose = sys.stderr.isatty() and not sys.stdout.isatty() and lines
    for line in translate(lines, progress.add if verbose else None):
        print(line)


if __name__ == "__main__":
    main_guard(main)
