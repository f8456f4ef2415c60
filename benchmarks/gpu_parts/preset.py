"""A preset from the command on, and a run that `training.prepare` made, trained to its end.

On TensorFlow `training.train` trains the phrasebook's preset, twice: for two epochs while the cache
of XLA's programs is empty, then to its end. Its best epoch translates the dev split, greedily and
with beams, and an export of it answers by its signature `translate`. Elsewhere
`training.train_arrays` trains the prepared run; where TensorFlow is installed and none is given,
the phrasebook's is made here.
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
PRESET = ("--preset", "phrasebook-en-fr", "--set", "batch_size=256")
SENTENCE = "She is eating a green apple."
BATCHES = (1, 32, 256)
TINY = (
    *("encoder_units=5", "decoder_units=7", "embedding_size=11", "attention_units=3", "epochs=1"),
    *("readout_units=11", "source_vocab_size=101", "target_vocab_size=103", "validation_limit=3"),
    "batch_shapes=1",
)


def measure(tiny: bool, prepared: Path | None) -> Iterator[dict[str, Any]]:
    """Give a row a training: seconds, tokens a second, the last epoch's figures."""
    with tempfile.TemporaryDirectory() as folder:
        yield from _measure(tiny, prepared, Path(folder))


def _measure(tiny: bool, prepared: Path | None, output: Path) -> Iterator[dict[str, Any]]:
    settings = [word for setting in TINY if tiny for word in ("--set", setting)]
    if tiny:
        pairs = output / "tiny.tsv"
        pairs.write_text("".join(f"{n} green apples\t{n} pommes vertes\n" for n in range(211)))
        settings += ["--data", f"tsv:{pairs}"]
    if calls.backend() == "tensorflow":
        yield from _on_tensorflow(tiny, settings, output)
        return
    run = output / "run"
    if prepared is not None:
        shutil.copytree(prepared, run)
    elif importlib.util.find_spec("tensorflow"):
        _do("tensorflow", "training.prepare", *PRESET, *settings, "--output", str(run))
    else:
        yield {"case": "not run: say --prepared RUN, which training.prepare makes elsewhere"}
        return
    yield {"case": "training.train_arrays", **_train(run, "training.train_arrays", str(run))}


def _on_tensorflow(tiny: bool, settings: list[str], output: Path) -> Iterator[dict[str, Any]]:
    os.environ["XDG_CACHE_HOME"] = str(output / "cache")
    train = ["training.train", *PRESET, *settings, "--output"]
    run = output / "cold"
    figures = _train(run, *train, str(run), "--set", "epochs=2")
    yield {"case": "training.train, cache of programs empty", **figures}
    run = output / "run"
    yield {"case": "training.train, cache filled", **_train(run, *train, str(run))}
    for width in (1, 5):
        command = ["training.evaluate", "--run", str(run), "--split", "dev"]
        printed = _do("tensorflow", *command, "--beam-width", str(width))
        yield {"case": "training.evaluate", **_figures(json.loads(printed.splitlines()[-1]))}
    _do("tensorflow", "serving.export", "--run", str(run), "--output", str(output / "models"))
    yield from _translate(output / "models" / "1", repeat=2 if tiny else 20)


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
    records = records["epochs"] if isinstance(records, dict) else records
    facts = {"seconds_to_second_epoch": ends[0] if ends else None, "all_seconds": seconds}
    return {**facts, "epochs": len(records), **_figures(records[-1])}


def _figures(record: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in record.items() if isinstance(value, int | float)}


def _translate(version: Path, repeat: int) -> Iterator[dict[str, Any]]:
    """Give rows for the signature `translate` of an export, in this process."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401, its ops are in the graph

    model = tf.saved_model.load(version)
    for batch in BATCHES:
        text = tf.constant([SENTENCE] * batch)

        def call(text: Any = text) -> Any:
            return model.signatures["translate"](text=text)["translation"].numpy()

        rate = batch / calls.milliseconds(call, repeat) * 1e3
        yield {"case": f"an export's translate, batch {batch}", "sentences_per_s": rate}


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
