"""This project's model that the benchmarks of training train, its batches, options and table."""

from __future__ import annotations

import argparse

import numpy as np
from parts.batches import MODELS, training_batches
from parts.turns import median

OURS = ("keras-attention", "keras-attention, mixed_bfloat16")


def load_batches(path: str) -> list[tuple[dict[str, np.ndarray], np.ndarray]]:
    """Inputs and labels of each batch for Keras models."""
    return [
        ({"source": source, "target": target}, labels)
        for source, target, labels in training_batches(path)
    ]


def our_config(case: str, options: argparse.Namespace) -> object:
    """The configuration of a case."""
    from training.config.schema import Config

    sizes = {
        "encoder_units": options.units // 2,
        "decoder_units": options.units,
        "embedding_size": options.units // 2,
        "attention_units": options.units,
        "readout_units": options.units,
    }
    cell, attention, recurrent = MODELS[options.model]
    settings = {"encoder": cell, "decoder": cell, "attention": attention}
    if attention == "general":
        settings |= {"order": "luong", "input_feeding": recurrent}
    precision = case.partition(", ")[2] or "float32"
    return Config(dropout=0.0, precision=precision, **sizes, **settings)


def our_model(case: str, options: argparse.Namespace) -> object:
    """A compiled model of this project."""
    import keras

    from training.fit.optimizer import ClippedAdam, TokenCrossentropy
    from training.model.seq2seq import build_seq2seq

    config = our_config(case, options)
    keras.config.set_dtype_policy(config.precision)
    model = build_seq2seq(config, options.vocabulary, options.vocabulary)
    model.compile(ClippedAdam(1e-3, 1e9), TokenCrossentropy(), jit_compile=options.jit_compile)
    return model


def speed(
    taken: list[dict[str, float]], tokens: int, options: argparse.Namespace
) -> dict[str, float]:
    """Return the figures of a case's rounds; a round has that many target tokens."""
    return {
        "tokens_per_s": round(tokens / median(taken)),
        "step_ms": round(median(taken) / options.batches * 1e3, 1),
        "processor_ms": round(median(taken, "processor_s") / options.batches * 1e3, 1),
    }


def print_table(rows: dict[str, dict[str, float | None]]) -> None:
    """Print the measurements."""
    columns = {name: name.split(" (")[0] for name in next(iter(rows.values()), {})}
    print(f"{'':48}" + "".join(f"  {title}" for title in columns.values()))
    for case, row in rows.items():
        print(f"{case:48}" + "".join(f"  {row[c]:>{len(t)}}" for c, t in columns.items()))


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is trained on what."""
    add = parser.add_argument
    add("--model", choices=MODELS, default="LSTM additive", help="what is trained")
    add("--repeat", type=int, default=5, help="rounds over all batches")
    add("--batch", type=int, default=64, help="sentences in a batch")
    add("--batches", type=int, default=16, help="batches in a round")
    add("--length", type=int, default=12, help="mean target tokens of a sentence")
    add("--length-multiple", type=int, default=1, help="lengths are padded to a multiple of it")
    add("--vocabulary", type=int, default=8000, help="tokens, on both sides")
    add("--units", type=int, default=512, help="of the decoder; the others follow from it")
    add("--jit-compile", action="store_true", help="compile this project's models by XLA")
    add("--seed", type=int, default=7, help="of data and weights")
