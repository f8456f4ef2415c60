"""How long text of any size takes from a file to the first training step, and in how much memory.

    python benchmarks/prepare_corpus.py --pairs 1000000

makes so many pairs of Tatoeba's English and French ($KERAS_ATTENTION_DATA), each sentence once and
then two drawn at random joined into one; prepares them, without repeated ones; trains until twenty
steps are done. Memory is that of the process and of its children,
what they share counted once. The last line is JSON.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parent.parent
STEPS = 20  # after the first
CORPUS = "tatoeba-en-fr"
SIZES = ["--preset", CORPUS]


def made(count: int, seed: int = 1) -> Iterator[str]:
    """Yield so many lines, source TAB target."""
    file = Path(os.environ["KERAS_ATTENTION_DATA"], CORPUS, "train.tsv.gz")
    with gzip.open(file, "rt", encoding="utf-8") as opened:
        pairs = [line.rstrip("\n").split("\t")[:2] for line in opened]
    rng = random.Random(seed)
    rng.shuffle(pairs)
    for source, target in pairs[:count]:
        yield f"{source}\t{target}\n"
    for _ in range(count - len(pairs)):
        (one, eins), (two, zwei) = rng.choice(pairs), rng.choice(pairs)
        yield f"{one} {two}\t{eins} {zwei}\n"


def measured(command: list[str]) -> tuple[float, float, str]:
    """Run a command; return its seconds, the most memory that it had, in MB, and what it said."""
    started, peak = time.perf_counter(), 0
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        root = psutil.Process(process.pid)
        while process.poll() is None:
            found = 0
            for each in [root, *children(root)]:
                try:
                    found += each.memory_full_info().pss
                except psutil.Error:  # it has ended
                    continue
            peak = max(peak, found)
            time.sleep(0.2)
        seconds = time.perf_counter() - started
        assert process.stdout is not None
        said = process.stdout.read()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed with status {process.returncode}")
    return seconds, peak / 1e6, said


def children(process: psutil.Process) -> list[psutil.Process]:
    """Return the processes below one."""
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []


def first_steps(spec: str, started: float) -> None:
    """Train until some steps are done; print the seconds until the first, and of the others."""
    import training.command.startup  # noqa: F401

    from training.config.schema import load_preset, override
    from training.fit import train as texts

    class Stopping(texts.Bar):
        """Counts steps."""

        times: list[float] = []  # noqa: RUF012

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.times.append(time.time())
            if len(self.times) > STEPS:
                first, last = self.times[0], self.times[-1]
                print(json.dumps([first - started, (last - first) / STEPS]), flush=True)
                os._exit(0)

    texts.Bar = Stopping  # type: ignore[misc]
    config = override(load_preset(CORPUS), [f"data={spec}", f"dev={CORPUS}"])
    with tempfile.TemporaryDirectory() as folder:
        texts.train(config, Path(folder, "run"))


def steps_of(spec: str) -> dict[str, float]:
    """Train for some steps in a process of its own."""
    command = [sys.executable, __file__, "--steps-of", spec, "--started", str(time.time())]
    _, peak, said = measured(command)
    first, step = json.loads(said.splitlines()[-1])
    return {"s to the first step": first, "ms a step": 1000 * step, "peak MB": peak}


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=1_000_000, help="default: 1,000,000")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="default: all cores")
    parser.add_argument("--folder", type=Path, help="for the files, new; default: a temporary one")
    parser.add_argument("--steps-of", help=argparse.SUPPRESS)
    parser.add_argument("--started", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.steps_of:
        first_steps(options.steps_of, options.started)
        return
    folder = options.folder or Path(tempfile.mkdtemp())
    folder.mkdir(exist_ok=True)
    try:
        rows = measure(options, folder)
    finally:
        if not options.folder:
            shutil.rmtree(folder)
    for name, row in rows.items():
        print(name, *(f"{key} {value:,.4g}" for key, value in row.items()), sep="; ")
    print(json.dumps({"rows": rows}))


def measure(options: argparse.Namespace, folder: Path) -> dict[str, dict[str, float]]:
    """Make the pairs, prepare them and train from them."""
    text, corpus = folder / "pairs.tsv", folder / "corpus"
    with text.open("w", encoding="utf-8") as file:
        file.writelines(made(options.pairs))
    command = [sys.executable, "-m", "training.prepare", *SIZES, "--data", f"tsv:{text}"]
    command += ["--corpus", str(corpus), "--workers", str(options.workers), "--no-duplicates"]
    seconds, peak, said = measured([*command, "--dev", CORPUS])
    print(said, end="", flush=True)
    pairs = json.loads((corpus / "manifest.json").read_text())["pairs"]
    arrays = sum(file.stat().st_size for file in corpus.glob("train.*"))
    rows = {
        "prepared": {
            "pairs": pairs,
            "s": seconds,
            "lines/s": options.pairs / seconds,
            "peak MB": peak,
            "bytes a pair": arrays / pairs,
            "bytes of text a line": text.stat().st_size / options.pairs,
        },
        "training from what is prepared": steps_of(f"prepared:{corpus}"),
    }
    return rows


if __name__ == "__main__":
    main()
