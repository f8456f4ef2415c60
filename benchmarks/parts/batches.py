"""Batches of random sentences to train on, and the models that are trained on them.

Asks for NumPy alone: peers' environments import it too.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

PAD, SPECIAL = 0, 4  # ids below SPECIAL are no words


class Model(NamedTuple):
    """The sizes and kinds of an encoder-decoder.

    Attributes:
        cell: "lstm" or "gru", of encoder and decoder.
        attention: "additive" or "general".
        recurrent: whether what attention finds enters the decoder's recurrence: as the context, or
            as the attentional vector, which is fed back.
    """

    cell: str
    attention: str
    recurrent: bool = True


MODELS = {
    "LSTM additive": Model("lstm", "additive"),
    "GRU additive": Model("gru", "additive"),
    "LSTM general, Luong, input feeding": Model("lstm", "general"),
    "LSTM general, Luong": Model("lstm", "general", recurrent=False),
}


def make_batches(options: argparse.Namespace) -> dict[str, np.ndarray]:
    """Sources and labels of all batches, ids padded with 0, in the order they are taken.

    Lengths count END; targets are about as long as their sources.
    """
    rng, count = np.random.default_rng(options.seed), options.batch * options.batches
    shortest, longest = round(options.length * 0.75), round(options.length * 1.25)
    targets = rng.integers(shortest, longest + 1, count)
    sources = np.maximum(1, targets + rng.integers(-2, 3, count))
    rows = np.lexsort((sources, targets)).reshape(options.batches, options.batch)

    def ids(lengths: np.ndarray) -> np.ndarray:
        width = -(-lengths.max() // options.length_multiple) * options.length_multiple
        words = rng.integers(SPECIAL, options.vocabulary, (len(lengths), width))
        return np.where(np.arange(width) < lengths[:, None], words, 0).astype("int32")

    batches = {}
    for number, chosen in enumerate(rng.permutation(rows)):
        batches[f"source_{number:03d}"] = ids(sources[chosen])
        batches[f"labels_{number:03d}"] = ids(targets[chosen])
    return batches


def training_batches(path: str, start: int = 1) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Sources, decoder inputs and labels of all batches, `(B, T)` int32, padded with PAD."""
    loaded, batches = np.load(path), []
    for number in range(len(loaded.files) // 2):
        source, labels = loaded[f"source_{number:03d}"], loaded[f"labels_{number:03d}"]
        inputs = np.roll(labels, 1, axis=1)
        inputs[:, 0] = start
        batches.append((source, inputs, labels))
    return batches


@contextlib.contextmanager
def written_batches(options: argparse.Namespace) -> Iterator[tuple[str, int]]:
    """Write all batches for workers: gives the file, and the number of its target tokens."""
    batches = make_batches(options)
    tokens = sum(int((x > 0).sum()) for name, x in batches.items() if name.startswith("labels"))
    with tempfile.TemporaryDirectory() as folder:
        data = f"{folder}/batches.npz"
        np.savez(data, **batches)
        yield data, tokens
