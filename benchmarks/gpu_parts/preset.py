"""A run that `training.prepare` made, trained to its end by `training.train_arrays`.

On TensorFlow `training.train` trains it, with tf.data, its best epoch translates the dev split, and
an export of it answers by its signature `translate`.
Where TensorFlow is installed and no prepared run is given, the phrasebook's is made here.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpu_parts import calls

ROOT = Path(__file__).parents[2]
PRESET = ("--preset", "phrasebook-en-fr")
SENTENCE = "She is eating a green apple."
BATCHES = (1, 32, 256)
TINY = (
    *("encoder_units=5", "decoder_units=7", "embedding_size=11", "attention_units=3", "epochs=1"),
    *("readout_units=11", "source_vocab_size=101", "target_vocab_size=103", "validation_limit=3"),
)


def measure(tiny: bool, prepared: Path | None, output: Path) -> Iterator[dict[str, Any]]:
    """Give a row for the training: seconds, tokens a second, the last epoch's figures."""
    settings = [word for setting in TINY if tiny for word in ("--set", setting)]
    if tiny:
        pairs = output / "tiny.tsv"
        pairs.write_text("".join(f"{n} green apples\t{n} pommes vertes\n" for n in range(211)))
        settings += ["--data", f"tsv:{pairs}"]
    run = output / "run"
    shutil.rmtree(run, ignore_errors=True)
    if calls.backend() == "tensorflow":
        command = ["training.train", *PRESET, *settings, "--output", str(run)]
    else:
        if prepared is not None:
            shutil.copytree(prepared, run)
        elif importlib.util.find_spec("tensorflow"):
            _do("tensorflow", "training.prepare", *PRESET, *settings, "--output", str(run))
        else:
            yield {"case": "not run: say --prepared RUN, which training.prepare makes elsewhere"}
            return
        command = ["training.train_arrays", str(run)]
    started = time.perf_counter()
    _do(calls.backend(), *command)
    taken = time.perf_counter() - started
    history = json.loads((run / "history.json").read_text())
    records = history["epochs"] if isinstance(history, dict) else history
    figures = {k: v for k, v in records[-1].items() if isinstance(v, int | float)}
    yield {"case": command[0], "seconds": taken, "epochs": len(records), **figures}
    if calls.backend() == "tensorflow":
        started = time.perf_counter()
        said = _do("tensorflow", "training.evaluate", "--run", str(run), "--split", "dev")
        scores = json.loads(said.splitlines()[-1])
        figures = {k: v for k, v in scores.items() if isinstance(v, int | float)}
        taken = time.perf_counter() - started
        yield {"case": "training.evaluate", "seconds": taken, **figures}
        models = output / "models"
        shutil.rmtree(models, ignore_errors=True)
        _do("tensorflow", "serving.export", "--run", str(run), "--output", str(models))
        yield from _translate(models / "1", repeat=2 if tiny else 20)


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


def _do(backend: str, *command: str) -> str:
    environment = {**os.environ, "KERAS_BACKEND": backend}
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout
