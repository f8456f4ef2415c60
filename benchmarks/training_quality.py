"""Quality with fast paths and without: python benchmarks/training_quality.py

Trains one configuration twice from the same seed: by the plain formulas, which TensorFlow
differentiates, in float32; and by all fast paths (loops with hoisted products, additive scores in
blocks, Adam in one operation, a cross-entropy with its own gradient) in mixed_bfloat16. Both are
scored on the dev set by `training.evaluate`, in float32, and the second once more with its
products in bfloat16. Prints a table; the last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

# By way, the precision of training.
WAYS = {"plain": "float32", "fast": "mixed_bfloat16"}


def train(way: str, arguments: Sequence[str]) -> None:
    """Train in this process, as `python -m training.train` does."""
    script = runpy.run_module("training.train")
    from keras_attention import fast_paths

    with fast_paths(way != "plain"):
        script["main"](list(arguments))


def run_json(command: list[str]) -> dict:
    """Run a Python command; return the JSON object of its last line."""
    done = subprocess.run([sys.executable, *command], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with status {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(options: argparse.Namespace, folder: Path) -> dict[str, dict[str, float]]:
    """Train and score all ways."""
    rows = {}
    for way, precision in WAYS.items():
        run = folder / way
        settings = [f"--set={setting}" for setting in [*options.settings, f"precision={precision}"]]
        command = [__file__, "--train", way, "--preset", options.preset, *settings]
        run_json([*command, "--output", str(run)])
        seconds = [epoch["seconds"] for epoch in json.loads((run / "history.json").read_text())]
        rows[way] = {"s_an_epoch": round(sum(seconds) / len(seconds), 1), **score(run, options)}
    decoded = score(folder / "fast", options, "--precision", "bfloat16")
    rows["fast, searched in bfloat16"] = {"s_an_epoch": rows["fast"]["s_an_epoch"], **decoded}
    return rows


def score(run: Path, options: argparse.Namespace, *more: str) -> dict[str, float]:
    """BLEU and chrF of a run's dev set."""
    width = ["--beam-width", str(options.beam_width)]
    found = run_json(
        ["-m", "training.evaluate", "--run", str(run), "--split", "dev", *width, *more]
    )
    return {name: round(found[name], 2) for name in ("bleu", "chrf")}


def print_table(rows: dict[str, dict[str, float]]) -> None:
    """Print the measurements."""
    columns = list(next(iter(rows.values())))
    print(f"{'':28}" + "".join(f"{column:>12}" for column in columns))
    for way, row in rows.items():
        print(f"{way:28}" + "".join(f"{row[column]:>12}" for column in columns))


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    if sys.argv[1:2] == ["--train"]:
        train(sys.argv[2], sys.argv[3:])
        return
    from training.command.options import add_options

    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--preset", default="tatoeba-en-fr", help="what to train")
    add_options(parser, "--set")
    add("--beam-width", type=int, default=5, help="of the search")
    add("--output", type=Path, help="keep the runs here")
    options = parser.parse_args(arguments)
    os.environ["KERAS_BACKEND"] = "tensorflow"  # that of the export
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(options, options.output or Path(folder))
    print_table(rows)
    print(json.dumps({"rows": rows, "preset": options.preset, "settings": options.settings}))


if __name__ == "__main__":
    main()
