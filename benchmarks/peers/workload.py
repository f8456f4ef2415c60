"""The work of a peer's worker: its sentences to translate, and how it serves."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

import numpy as np
from parts.batches import MODELS, PAD, SPECIAL
from parts.turns import rounds_by_mode, serve


def refuse(what: object) -> NoReturn:
    """End this worker, since its software has not what is asked for."""
    raise SystemExit(f"{Path(sys.argv[0]).stem} has no {what}")


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

    def checked(width: int) -> Callable[[np.ndarray], None]:
        translate = make(width, settings["length"])

        def run(chosen: np.ndarray) -> None:
            found = np.asarray(translate(chosen))
            assert found.shape == (len(chosen), settings["length"]), found.shape
            assert (found[:, :-1] >= SPECIAL).all()  # the last may be END

        return run

    return rounds_by_mode(settings, sources, checked)


def serve_peer(
    train: Callable[..., Callable[[], None]],
    translate: Callable[..., Mapping[str, Callable[[], None]]],
) -> None:
    """Be the worker that the command line asks for.

    `train DATA VOCABULARY UNITS MODEL FORM...` or `translate DATA VOCABULARY UNITS FORM...`, with
    what a form is called, see `TRAINING_FORMS` and `TRANSLATION_FORMS`
    of environments.py.

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
