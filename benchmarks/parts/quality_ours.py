"""This project's case of quality_peers.py: its own commands, timed from outside."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from parts.quality import Task

from training.command.files import read_json
from training.config.schema import load_config
from training.runs.files import RunFiles


def run(
    task: Task, preset: str, settings: Sequence[str], dev_limit: int | None = None
) -> dict[str, float | None]:
    """Train the preset for so many seconds, and translate dev by `training.evaluate`.

    Its learning rate falls over all epochs, so that their number is to be known before: one epoch
    is trained and thrown away to see how many fit; where none does, one is trained all the same.
    The trial takes time of its own. The training's time includes the start of Python, the
    reading of the corpus and the tokenizers, which peers find ready. Returns what
    `parts.quality.serve` asks for; the translations are `texts`.

    Raises:
        RuntimeError: if a command fails, or is so much slower than its trial that no epoch ends.
    """
    output = Path(task.output)
    chosen = [f"--set={setting}" for setting in settings]
    command = ["training.train", "--preset", preset, *chosen]
    trial = output / "trial"
    started = time.time()
    run_module([*command, "--set=epochs=1", "--output", str(trial)], output)
    begun, ended = (f.stat().st_mtime for f in (RunFiles(trial).config, RunFiles(trial).history))
    shutil.rmtree(trial)
    epochs = max(1, int((task.seconds - (begun - started)) / (ended - begun)))

    files = RunFiles(output / "run")
    started = time.time()
    try:
        fitting = [f"--set=epochs={epochs}", "--output", str(files.path)]
        run_module([*command, *fitting], output, task.seconds if epochs > 1 else None)
    except subprocess.TimeoutExpired:
        if not files.best.is_file():
            raise RuntimeError(f"{task.seconds:.0f} s are not enough for one epoch") from None
    seconds = time.time() - started
    for tokenizer in files.tokenizers:
        if tokenizer.read_bytes() != Path(task.file(tokenizer.name)).read_bytes():
            raise RuntimeError(f"{tokenizer} is not that of the peers")

    scored = run_module(
        ["training.evaluate", "--run", str(files.path), "--split", "dev"]
        + ["--beam-width", str(task.beam_width), "--batch-size", str(task.batch_size)]
        + ["--hypotheses", task.own("texts")]
        + (["--limit", str(dev_limit)] if dev_limit else []),
        output,
    )
    done = len(read_json(files.history))
    steps = read_json(files.origin)["train"] // load_config(files.config).batch_size
    return {
        "weights": task.weights,
        "seconds": seconds,
        "steps": done * max(1, steps),
        "epochs": done,
        "translation_s": scored["seconds"],
    }


def run_module(arguments: list[str], output: Path, seconds: float | None = None) -> dict:
    """Run a module, logged in `output`; return the JSON object of its last line."""
    with (output / "log.txt").open("a") as log:
        done = subprocess.run(
            [sys.executable, "-m", *arguments],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            timeout=seconds,
        )
        log.write(done.stdout)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)} ended with status {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])
