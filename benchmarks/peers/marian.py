"""Marian as a worker of the benchmarks, run by its own environment's Python.

python -m peers.marian train BATCHES VOCABULARY UNITS MODEL FORM...
python -m peers.marian translate SETTINGS VOCABULARY UNITS FORM...

It has one width for encoder and decoder, here the decoder's: its encoder is twice as wide as the
others'; before the vocabulary product it is half as wide. Its bindings offer a training as a whole,
which a round therefore runs: two epochs, the second of which counts, by Marian's own log. Both
threads work on parts of a batch; for one sentence at a time there is one.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from parts.batches import MODELS, SPECIAL, Model, training_batches
from peers.workload import lengths, refuse, serve_peer, translation_rounds
from pymarian import Translator

THREADS = 2
END, UNKNOWN = "</s>", "<unk>"
UPDATE = re.compile(r"Ep\. (\d+) .* Time ([\d.]+)s")


def settings(
    folder: Path, vocabulary: int, units: int, kind: Model = MODELS["LSTM additive"]
) -> dict:
    """The benchmarks' encoder-decoder, and how it is trained."""
    tokens = [END, UNKNOWN, *(f"w{number}" for number in range(vocabulary - 2))]
    words = folder / "words.yml"
    words.write_text("".join(f"{token}: {number}\n" for number, token in enumerate(tokens)))
    return {
        "type": "s2s",
        "model": str(folder / "model.npz"),
        "vocabs": [str(words)] * 2,
        "dim_vocabs": [vocabulary] * 2,
        "dim_emb": units // 2,
        "dim_rnn": units,
        "enc_cell": kind.cell,
        "dec_cell": kind.cell,
        "train_sets": [str(folder / side) for side in ("source", "target")],
        "cpu_threads": THREADS,
        "maxi_batch": 1,
        "shuffle": "none",
        "optimizer": "adam",
        "learn_rate": 1e-3,
        "overwrite": True,
        "no_reload": True,  # every round begins anew
        "quiet": True,
        "seed": 1,
    }


def text(ids: np.ndarray) -> str:
    """The words of a sentence of ids."""
    return " ".join(f"w{token - SPECIAL}" for token in ids)


def write(path: Path, rows: Iterable[np.ndarray]) -> None:
    """Write sentences of ids, without the last token of each: Marian puts an end there."""
    with path.open("w") as file:
        for row in rows:
            file.write(text(row[: lengths(row[None])[0] - 1]) + "\n")


def train(options: dict) -> None:
    """Train in a process of its own: a process has one log."""
    script = "import json, sys, pymarian; pymarian.Trainer(**json.loads(sys.argv[1])).train()"
    subprocess.run([sys.executable, "-c", script, json.dumps(options)], check=True)


def training(
    path: str, vocabulary: int, units: int, kind: Model, form: list[str]
) -> Callable[[], dict[str, float]]:
    """A function that trains on every batch twice, and returns what the second time took."""
    if kind.attention != "additive" or form:
        refuse((kind, form))
    folder = Path(tempfile.mkdtemp())
    batches = training_batches(path)
    for side, number in (("source", 0), ("target", 2)):
        write(folder / side, (row for batch in batches for row in batch[number]))
    log = folder / "log"
    options = settings(folder, vocabulary, units, kind)
    options |= {"mini_batch": len(batches[0][0]), "after_epochs": 2, "disp_freq": 1}

    def round_() -> dict[str, float]:
        log.unlink(missing_ok=True)
        started, processor = time.perf_counter(), os.times().children_user
        train(options | {"log": str(log)})
        whole, processor = time.perf_counter() - started, os.times().children_user - processor
        updates = UPDATE.findall(log.read_text())
        seconds = [float(taken) for epoch, taken in updates if epoch == "2"]
        assert len(seconds) == len(batches), updates
        return {"wall_s": sum(seconds), "processor_s": processor * sum(seconds) / whole}

    return round_


def translations(
    path: str, vocabulary: int, units: int, form: list[str]
) -> dict[str, Callable[[], None]]:
    """Functions that translate all sentences, by the mode's name."""
    folder = Path(tempfile.mkdtemp())
    options = settings(folder, vocabulary, units)
    for side in ("source", "target"):
        write(folder / side, np.full((1, 4), SPECIAL))
    train(options | {"mini_batch": 1, "after_batches": 1})
    weights = dict(np.load(options["model"]))
    weights["decoder_ff_logit_l2_b"][:, :2] = -1e4  # never the end, nor what is no word
    np.savez(options["model"], **weights)

    def make(beam_width: int, length: int) -> Callable[[np.ndarray], np.ndarray]:
        translators: dict[int, Translator] = {}

        def translator(threads: int, source_length: int) -> Translator:
            if threads not in translators:
                translators[threads] = Translator(
                    models=[options["model"]],
                    vocabs=options["vocabs"],
                    beam_size=beam_width,
                    cpu_threads=threads,
                    mini_batch=32 // threads,
                    maxi_batch=threads,
                    max_length_factor=(length - 0.5) / source_length,
                    gemm_type="".join(form) or "float32",
                    quiet=True,
                )
            return translators[threads]

        def translate(source: np.ndarray) -> np.ndarray:
            texts = [text(row) for row in source]
            threads = THREADS if len(texts) > 1 else 1
            found = translator(threads, source.shape[1] + 1).translate(texts)
            rows = [[int(word[1:]) + SPECIAL for word in line.split()] for line in found]
            return np.array(rows)

        return translate

    return translation_rounds(path, make)


if __name__ == "__main__":
    serve_peer(training, translations)
