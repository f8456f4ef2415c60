"""The time that `training.train` adds to bare steps: see training_speed.py --end-to-end."""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import tempfile
import time
from pathlib import Path
from unittest import mock

import numpy as np
from parts.batches import draw_lengths

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def write_corpus(path: Path, options: argparse.Namespace) -> None:
    """Write sentences of random words; 1 in 50 is held out by `training.train`."""
    rng = np.random.default_rng(options.seed)
    count = max(100, options.batch * (options.batches + 1) * 50 // 49)
    sources, targets = draw_lengths(rng, count, options)
    sources, targets = np.maximum(1, sources - 1), targets - 1  # END is a token too

    def text(length: int) -> str:
        return " ".join(f"w{number}" for number in rng.integers(0, options.vocabulary, length))

    rows = (
        f"{text(source)}\t{text(target)}\n" for source, target in zip(sources, targets, strict=True)
    )
    path.write_text("".join(rows))


def measure(config: object, options: argparse.Namespace) -> dict[str, float]:
    """Train by `training.train`; after each epoch do its steps again with `train_on_batch`.

    Scores of the dev set are left out; checkpoints and the card are not.

    Args:
        config: a `Config`; data, vocabularies, batch and epochs are replaced.
        options: the command's.
    """
    from training.data.batches import read_batches
    from training.data.pipeline import make_dataset
    from training.fit import train as texts
    from training.fit.recorder import Recorder

    epochs = []

    class Timed(Recorder):
        """Does each epoch's steps again."""

        def finish(self, loss: float, seconds: float, **more: float) -> dict[str, float]:
            taken = {"fit_s": seconds}
            pairs, _ = read_batches(self.config, self.files.tokens)
            batches = list(make_dataset(pairs, len(self.history)).as_numpy_iterator())
            taken["tokens"] = sum(int((labels > 0).sum()) for _, labels in batches)
            started = time.perf_counter()
            for inputs, labels in batches:
                self.model.train_on_batch(inputs, labels)
            trained = time.perf_counter()
            record = super().finish(loss, seconds, **more)
            taken["bare_s"], taken["between_s"] = trained - started, time.perf_counter() - trained
            epochs.append(taken)
            return record

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "corpus.tsv"
        write_corpus(path, options)
        config = dataclasses.replace(
            config,
            data=f"tsv:{path}",
            source_tokenizer="words",
            target_tokenizer="words",
            source_vocab_size=options.vocabulary,
            target_vocab_size=options.vocabulary,
            batch_size=options.batch,
            epochs=options.repeat + 2,  # the first compiles, after the last nothing begins
            jit_compile=options.jit_compile,
            seed=options.seed,
        )
        score = {"val_perplexity": 1.0, "bleu": 0.0}
        with (
            mock.patch.object(texts, "Recorder", Timed),
            mock.patch.object(texts.DevSet, "score", return_value=score),
        ):
            texts.train(config, Path(folder) / "run")
    median, epochs = statistics.median, epochs[1:-1]
    return {
        "train tokens_per_s": round(median(e["tokens"] / e["fit_s"] for e in epochs)),
        "train_on_batch tokens_per_s": round(median(e["tokens"] / e["bare_s"] for e in epochs)),
        "ratio": round(median(e["bare_s"] / e["fit_s"] for e in epochs), 3),
        "bookkeeping_s_an_epoch": round(median(e["between_s"] for e in epochs), 2),
    }
