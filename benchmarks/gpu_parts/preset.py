"""A preset from the command on, and a run that `training.prepare` made, trained to its end.

On TensorFlow `training.train` trains the phrasebook's preset, twice: while the cache of XLA's
programs is empty, and while it is filled. On JAX and PyTorch it trains the prepared run; if none is
given and TensorFlow is installed, the phrasebook's is made here.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpu_parts import calls

ROOT = Path(__file__).parents[2]
CASES = ("cold", "warm")
PRESET = ("--preset", "phrasebook-en-fr", "--set", "batch_size=256")
TINY = (
    *("encoder_units=5", "decoder_units=7", "embedding_size=11", "attention_units=3", "epochs=1"),
    *(
        "readout_units=11",
        "source_vocab_size=101",
        "target_vocab_size=103",
        "max_dev_translations=3",
    ),
    "batch_shapes=1",
)


def measure(tiny: bool, prepared: Path | None, case: str, output: Path) -> Iterator[dict[str, Any]]:
    """Give a row a training: seconds, tokens a second, the last epoch's figures.

    On TensorFlow `case` is one of CASES, which leave their runs and programs in `output`.
    """
    if case in CASES:
        yield from _on_tensorflow(tiny, case, output / "preset")
        return
    with tempfile.TemporaryDirectory() as folder:
        yield from _prepared(tiny, prepared, Path(folder))


def _settings(tiny: bool, output: Path) -> list[str]:
    if not tiny:
        return []
    output.mkdir(exist_ok=True)
    pairs = output / "tiny.tsv"
    pairs.write_text("".join(f"{n} green apples\t{n} pommes vertes\n" for n in range(211)))
    return [*(word for x in TINY for word in ("--set", x)), "--data", f"tsv:{pairs}"]


def _prepared(tiny: bool, prepared: Path | None, output: Path) -> Iterator[dict[str, Any]]:
    run = output / "run"
    if prepared is not None:
        shutil.copytree(prepared, run)
    elif importlib.util.find_spec("tensorflow"):
        words = [*PRESET, *_settings(tiny, output), "--output", str(run)]
        _do("tensorflow", "training.prepare", *words)
    else:
        yield {"case": "not run: say --prepared RUN, which training.prepare makes elsewhere"}
        return
    command = ("training.train", "--resume", "--output", str(run))
    yield {"case": "training.train --resume", **_train(run, *command)}


def _on_tensorflow(tiny: bool, case: str, output: Path) -> Iterator[dict[str, Any]]:
    os.environ["XDG_CACHE_HOME"] = str(output / "cache")
    run, train = output / case, ["training.train", *PRESET, *_settings(tiny, output)]
    train += ["--output", str(run)]
    shutil.rmtree(run, ignore_errors=True)
    if case == "cold":
        shutil.rmtree(output / "cache", ignore_errors=True)
    filled = "empty" if case == "cold" else "filled"
    yield {"case": f"training.train, cache of programs {filled}", **_train(run, *train)}


def _train(run: Path, *command: str) -> dict[str, Any]:
    """Train; return the seconds to the second epoch and to the end, and the last figures."""
    ends: list[float] = []
    started = time.perf_counter()

    def note(line: str) -> None:
        if line.startswith("epoch "):
            ends.append(time.perf_counter() - started)

    _do(calls.backend(), *command, note=note)
    seconds = time.perf_counter() - started
    records = json.loads((run / "history.json").read_text())
    facts = {"seconds_to_second_epoch": ends[0] if ends else None, "all_seconds": seconds}
    figures = {name: x for name, x in records[-1].items() if isinstance(x, int | float)}
    return {**facts, "epochs": len(records), **figures}


def _do(backend: str, *command: str, note: Callable[[str], None] = lambda line: None) -> str:
    """Run a module; return what it printed, each line of which went to `note` as it came."""
    environment = {**os.environ, "KERAS_BACKEND": backend, "PYTHONUNBUFFERED": "1"}
    words = [sys.executable, "-m", *command]
    lines = []
    with subprocess.Popen(
        words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        for line in process.stdout:
            note(line)
            lines.append(line)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, words)
    return "".join(lines)
