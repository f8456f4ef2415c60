"""Many lines translated in files: two of Ray's workers of which some die, and other ways beside.

    python benchmarks/batch_translation.py --run runs/demo --lines 1000000

needs the extra `batch`. It exports the run (greedy search unless `--beam-width` says more), draws
lines from the phrasebook, and translates them with `serving.batch`: by two workers, of which one is
killed (SIGKILL) after a third of the files and one after two thirds, and by one process. Both
outputs are compared line by line. Of the first `--beside` lines: `training.translate`, and a local
server that four clients send 64 lines at a time. All have one thread a process but the server,
which has the machine; seconds are those of a whole command, start included, but for the server's,
which is there already. The last line is JSON.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from parts.local_server import server

from serving.client import Translator
from training.data import corpus

ROOT = Path(__file__).parent.parent
DISTINCT, FILE, TOGETHER, CLIENTS = 40_000, 10_000, 64, 4
ONE_THREAD = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)} | dict.fromkeys(ONE_THREAD, "1")


def draw(folder: Path, count: int) -> None:
    """Write so many lines into files."""
    texts = corpus.load("phrasebook-en-fr", "train", limit=min(count, DISTINCT)).sources
    rng = random.Random(3)
    for number, first in enumerate(range(0, count, FILE)):
        lines = (f"{rng.choice(texts)}\n" for _ in range(min(FILE, count - first)))
        (folder / f"part-{number:04d}.txt").write_text("".join(lines), encoding="utf-8")


def workers(process: int) -> list[int]:
    """Return Ray's workers below a process that have a model."""
    parents, names = {}, {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            parents[int(entry.name)] = int(fields[1])
            names[int(entry.name)] = (entry / "cmdline").read_text()
        except OSError:  # it has ended
            continue

    def is_below(one: int) -> bool:
        while one not in (0, process):
            one = parents.get(one, 0)
        return one == process

    return [one for one, name in names.items() if "_Worker" in name and is_below(one)]


def batch(model: Path, texts: Path, output: Path, *more: str, kill_at: tuple = ()) -> Any:
    """Run `serving.batch`; kill a worker when so many files are done; return its last line."""
    command = [sys.executable, "-m", "serving.batch", "--model", str(model)]
    command += ["--input", str(texts / "*.txt"), "--output", str(output), "--batch-size", "256"]
    killed = 0
    with subprocess.Popen(
        [*command, *more], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    ) as job:
        while job.poll() is None:
            time.sleep(0.2)
            done = len(list(output.glob("part-*.jsonl")))
            if killed < len(kill_at) and done >= kill_at[killed] and (found := workers(job.pid)):
                os.kill(found[0], signal.SIGKILL)
                killed += 1
                print(f"killed {found[0]} of {found} after {done} files", flush=True)
        assert job.stdout is not None
        said = job.stdout.read().splitlines()
    if job.returncode or killed < len(kill_at):
        raise SystemExit(f"status {job.returncode}, {killed} workers killed")
    return json.loads(said[-1])


def differences(one: Path, other: Path) -> tuple[int, int, int]:
    """Return lines, lines that differ at all, and lines with another translation."""
    names = [{file.name for file in folder.glob("*.jsonl")} for folder in (one, other)]
    if names[0] != names[1]:
        raise SystemExit(f"other files: {sorted(names[0] ^ names[1])}")
    lines = differ = otherwise = 0
    for name in sorted(names[0]):
        with (one / name).open() as mine, (other / name).open() as theirs:
            for a, b in itertools.zip_longest(mine, theirs, fillvalue="{}"):
                lines += 1
                if a != b:
                    differ += 1
                    otherwise += json.loads(a).get("translation") != json.loads(b)["translation"]
    return lines, differ, otherwise


def first_lines(texts: Path, count: int) -> list[str]:
    """Return the first lines of the files."""

    def every() -> Iterator[str]:
        for file in sorted(texts.glob("*.txt")):
            yield from file.read_text(encoding="utf-8").splitlines()

    return list(itertools.islice(every(), count))


def by_training_translate(run: Path, lines: list[str], width: int) -> float:
    """Return the seconds of `training.translate`."""
    started = time.perf_counter()
    subprocess.run(
        [
            *(sys.executable, "-m", "training.translate", "--run", str(run)),
            *("--beam-width", str(width), "--batch-size", "256"),
        ],
        env=ENVIRONMENT,
        input="".join(f"{line}\n" for line in lines),
        stdout=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    return time.perf_counter() - started


def by_server(model: Path, lines: list[str]) -> float:
    """Return the seconds that several clients of a server take, when it is there."""
    parts = [lines[first : first + TOGETHER] for first in range(0, len(lines), TOGETHER)]
    with (
        server(model) as (target, _),
        Translator(target, "load", timeout=120) as translator,
        concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients,
    ):
        translator.translate(parts[0])
        started = time.perf_counter()
        found = sum(map(len, clients.map(translator.translate, parts)))
        seconds = time.perf_counter() - started
    assert found == len(lines)
    return seconds


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True, help="a run from English, the demo's")
    parser.add_argument("--lines", type=int, default=1_000_000, help="default: 1,000,000")
    parser.add_argument("--beside", type=int, default=50_000, help="default: 50,000")
    parser.add_argument("--beam-width", type=int, default=1, help="default: 1")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        print(json.dumps({"rows": measure(options, Path(name))}))


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Do all of it."""
    texts, model, width = folder / "texts", folder / "models" / "phrasebook", options.beam_width
    texts.mkdir()
    draw(texts, options.lines)
    export = [sys.executable, "-m", "serving.export", "--run", str(options.run)]
    export += ["--output", str(model), "--beam-width", str(width), "--nbest", str(width)]
    subprocess.run(export, env=ENVIRONMENT, check=True)
    rows: dict[str, Any] = {}

    def say(name: str, **row: Any) -> None:
        rows[name] = row
        print(name, *(f"{key} {value:,}" for key, value in row.items()), sep="; ", flush=True)

    files = len(list(texts.glob("*.txt")))
    kills = (max(1, files // 3), max(2, 2 * files // 3))
    for name, more, kill_at in (
        ("two workers, two killed", ("--workers", "2"), kills),
        ("one process", (), ()),
    ):
        output = folder / name.split(",")[0].replace(" ", "-")
        started = time.perf_counter()
        said = batch(model, texts, output, *more, kill_at=kill_at)
        seconds = time.perf_counter() - started
        say(name, lines=options.lines, s=round(seconds), per_s=round(options.lines / seconds))
        if said["files"] != files or said["bad"]:
            raise SystemExit(f"not what was expected: {said}")
    found = differences(folder / "two-workers", folder / "one-process")
    say("compared", **dict(zip(("lines", "differ", "translated_otherwise"), found, strict=True)))
    lines = first_lines(texts, options.beside)
    for name, seconds in (
        ("training.translate", by_training_translate(options.run, lines, width)),
        ("server, four clients", by_server(model, lines)),
    ):
        say(name, lines=len(lines), s=round(seconds, 1), per_s=round(len(lines) / seconds))
    return rows


if __name__ == "__main__":
    main()
