"""What workers of peers share: batches to train on, sentences to translate, how they serve."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
from turns import serve

PAD, SPECIAL = 0, 4  # ids below SPECIAL are no words


class Model(NamedTuple):
    """What an encoder-decoder is made of.

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


def refuse(what: object) -> NoReturn:
    """End this worker, since its software has not what is asked for."""
    raise SystemExit(f"{Path(sys.argv[0]).stem} has no {what}")


def training_batches(path: str, start: int = 1) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Sources, decoder inputs and labels of all batches, `(B, T)` int32, padded with PAD."""
    loaded, batches = np.load(path), []
    for number in range(len(loaded.files) // 2):
        source, labels = loaded[f"source_{number:03d}"], loaded[f"labels_{number:03d}"]
        inputs = np.roll(labels, 1, axis=1)
        inputs[:, 0] = start
        batches.append((source, inputs, labels))
    return batches


def lengths(ids: np.ndarray) -> np.ndarray:
    """Tokens of each sentence that are no padding, `(B,)` int32."""
    return (ids != PAD).sum(1).astype("int32")


def translation_rounds(
    path: str, make: Callable[[int, int], Callable[[np.ndarray], np.ndarray]]
) -> dict[str, Callable[[], None]]:
    """Functions that translate all sentences, by the mode's name: see decoding_speed.py.

    Args:
        path: the settings.
        make: called with a beam width and the number of tokens of a translation; returns a
            function from sources `(B, S)` int64 to translations `(B, length)`.
    """
    settings = json.loads(Path(path).read_text())
    sources = np.array([[int(w[1:]) + SPECIAL for w in text.split()] for text in settings["texts"]])
    length = settings["length"]

    def run(translate: Callable, batch: int) -> None:
        for first in range(0, len(sources), batch):
            chosen = sources[first : first + batch]
            found = np.asarray(translate(chosen))
            assert found.shape == (len(chosen), length), found.shape
            assert (found[:, :-1] >= SPECIAL).all()  # the last may be END

    translators = {w: make(w, length) for w in {w for w, _ in settings["modes"].values()}}
    return {
        mode: functools.partial(run, translators[width], batch)
        for mode, (width, batch) in settings["modes"].items()
    }


def serve_peer(
    train: Callable[..., Callable[[], None]],
    translate: Callable[..., Mapping[str, Callable[[], None]]],
) -> None:
    """Be the worker that the command line asks for.

    `train DATA VOCABULARY UNITS MODEL FORM...` or `translate DATA VOCABULARY UNITS FORM...`, with
    what a form is called, see `turns.TRAINING_FORMS` and `turns.TRANSLATION_FORMS`.

    Args:
        train: from data, vocabulary, units, a `Model` and the form to a function that trains on
            every batch once.
        translate: from data, vocabulary, units and the form to functions that translate all
            sentences, by the mode's name.
    """
    _, task, data, vocabulary, units, *rest = sys.argv
    sizes = int(vocabulary), int(units)
    if task == "train":
        model, *form = rest
        serve({"train": train(data, *sizes, MODELS[model], form)})
    else:
        serve(translate(data, *sizes, rest), warm_up=1)
