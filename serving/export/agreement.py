"""How an export with rounded weights or products answers otherwise than one in float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from keras_attention import exporting
from serving.export.examples import dev_sources
from serving.export.texts import WARMUP_TEXTS, Exported, traced
from training.command.progress import Tell
from training.runs.run import Run
from training.sources.kinds import KINDS

COMPARED = 500  # sources
_TOGETHER = 100


def is_rounded(settings: dict[str, Any]) -> bool:
    """Whether an export of these settings may answer otherwise than its runs."""
    return any(settings.get(name, "float32") != "float32" for name in ("weights", "precision"))


def compared_sources(run: Run) -> list[Any]:
    """Return the sources that are compared: of the dev split, where it can be found."""
    texts = WARMUP_TEXTS if KINDS[run.config.source].tokens else ()
    return dev_sources(run, COMPARED) or list(texts)


def agreement(
    runs: Sequence[Run],
    texts: Sequence[str],
    rounded: Callable[..., dict[str, tf.Tensor]],
    settings: dict[str, Any],
    tell: Tell = lambda what, share=None: None,
) -> dict[str, float]:
    """Compare the translations of texts by a signature, `translate`, with those in float32.

    Returns:
        The number of `texts`, how many have the `same` translation, and the largest
        `score_difference` among those.
    """
    plain = Exported(runs, **{**settings, "precision": "float32"})
    answers = []
    with exporting():
        traced_plain = traced(plain.translate, {"text": ((None,), "string")})
    for turn, translate in enumerate((traced_plain, rounded)):
        batches = []
        for start in range(0, len(texts), _TOGETHER):
            done = (turn + start / len(texts)) / 2
            tell("comparing its translations with those in float32", done)
            batches.append(translate(text=tf.constant(texts[start : start + _TOGETHER])))
        answers.append([np.concatenate([b[k] for b in batches]) for k in ("translation", "score")])
    return _differences(*answers)


def local_agreement(
    run: Run, sources: Sequence[Any], plain: Path, rounded: Path
) -> dict[str, float]:
    """Compare the answers of an ONNX export with those of one in float32: see `agreement`.

    Of `histories`, it is by how much probabilities differ, `probability_difference`.
    """
    from serving.client.local import LocalPredictor, LocalReader, LocalTranslator

    if run.config.target == "label":
        exact, approximate = (
            np.array([each.probability for each in LocalPredictor(folder).outcome(sources)])
            for folder in (plain, rounded)
        )
        most = float(np.abs(exact - approximate).max(initial=0))
        return {"histories": len(sources), "probability_difference": most}
    answers: list[list[Any]] = [
        LocalTranslator(folder).translate(sources)
        if KINDS[run.config.source].tokens
        else LocalReader(folder).read(sources)
        for folder in (plain, rounded)
    ]
    return _differences(
        *(
            [np.array([getattr(each, k) for each in model]) for k in ("text", "score")]
            for model in answers
        )
    )


def _differences(expected: Sequence[np.ndarray], rounded: Sequence[np.ndarray]) -> dict[str, float]:
    """Return what `agreement` returns of answers, each its texts and their scores."""
    same = expected[0] == rounded[0]
    return {
        "texts": len(same),
        "same": int(same.sum()),
        "score_difference": float(np.abs(expected[1] - rounded[1])[same].max(initial=0)),
    }
