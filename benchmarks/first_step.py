"""How long `training.train` takes to its first step, and how fast the steps after it are.

    python benchmarks/first_step.py -- --preset tatoeba-en-fr

runs `training.train` with what stands after `--` in a run directory of its own, until some steps
are done, and then once more with `--resume`. Each round is two new processes. `--tree` takes the
code of another checkout, in turns with this one, to compare them. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FIGURES = ("s to the first step", "ms a step", "processor s to the first step")


def train(arguments: list[str], started: float, steps: int) -> None:
    """Train until some steps are done; print the seconds until the first, and of the others."""
    script = runpy.run_module("training.train")
    from training.fit import train as texts

    class Stopping(texts.Bar):
        """Counts steps."""

        times: list[float] = []  # noqa: RUF012

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.times.append(time.time())
            if len(self.times) == 1:
                self.processor = time.process_time()
            if len(self.times) > steps:
                first, last = self.times[0], self.times[-1]
                rate = 1000 * (last - first) / steps
                found = (first - started, rate, self.processor)
                print(json.dumps(dict(zip(FIGURES, found, strict=True))), flush=True)
                os._exit(0)

    texts.Bar = Stopping  # type: ignore[misc]
    script["main"](arguments)


def measured(arguments: list[str], steps: int, tree: Path = ROOT) -> dict[str, float]:
    """Train for some steps in a process of its own; return its figures."""
    command = [sys.executable, __file__, "--steps", str(steps), "--started", str(time.time()), "--"]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    said = subprocess.run(
        [*command, *arguments], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, float] = json.loads(said.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20, help="after the first; default: 20")
    parser.add_argument("--rounds", type=int, default=1, help="of both; default: 1")
    parser.add_argument("--tree", type=Path, help="another checkout to compare with")
    parser.add_argument("--started", type=float, help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs="+", help="of training.train, without --output")
    options = parser.parse_args()
    if options.started:
        train(options.arguments, options.started, options.steps)
        return
    trees = {"this": ROOT, **({"other": options.tree.absolute()} if options.tree else {})}
    rows: dict[str, list[dict[str, float]]] = {}
    for _ in range(options.rounds):
        for name, tree in trees.items():
            folder = Path(tempfile.mkdtemp())
            try:
                for kind, words in (("new", options.arguments), ("resumed", ["--resume"])):
                    words = [*words, "--output", str(folder / "run")]
                    found = measured(words, options.steps, tree)
                    print(name, kind, *(f"{key} {value:.2f}" for key, value in found.items()))
                    sys.stdout.flush()
                    rows.setdefault(f"{name}, {kind}", []).append(found)
            finally:
                shutil.rmtree(folder)
    medians = {
        name: {key: statistics.median(one[key] for one in found) for key in FIGURES}
        for name, found in rows.items()
    }
    print(json.dumps({"medians": medians, "rounds": options.rounds}))


if __name__ == "__main__":
    main()
