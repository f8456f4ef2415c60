"""The kinds of ONNX exports: the questions of their check, and the run's answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from serving.check.questions import HARD_TEXTS, TEXTS
from serving.client.file_kinds import image_file
from serving.client.histories import padded_columns
from serving.client.local import LocalPredictor, LocalReader, LocalTranslator
from serving.client.local.model import LocalModel

Ask = Callable[[Any, list[Any]], list[Any]]


@dataclass(frozen=True)
class Kind:
    """A kind of export.

    Attributes:
        model: its class.
        questions: the question to a model about sources, by signature; the first is the main one.
        says: the attribute of an answer to the main question.
        sources: from the manifest to sources by their name in findings; the first are usual ones.
        by_run: from runs, sources and settings to the runs' answers to the main question.
    """

    model: Callable[..., LocalModel]
    questions: dict[str, Ask]
    says: str
    sources: Callable[[dict[str, Any]], dict[str, list[Any]]]
    by_run: Callable[[list[Any], list[Any], dict[str, Any]], list[str | float]]

    def answers(self, model: Any, sources: list[Any]) -> list[str | float]:
        """Return a model's answers to the main question."""
        ask = next(iter(self.questions.values()))
        return [getattr(each, self.says) for each in ask(model, sources)]


def _texts(manifest: dict[str, Any]) -> dict[str, list[Any]]:
    groups = {"texts": TEXTS, "odd texts": HARD_TEXTS.values()}
    return {
        name: [text.decode("utf-8", "replace") for text in texts] for name, texts in groups.items()
    }


def _images(manifest: dict[str, Any]) -> dict[str, list[Any]]:
    """Return noise of the model's size and of others."""
    rng = np.random.default_rng(1)
    size = manifest["source"]["height"], manifest["source"]["width"]
    sizes = [*[size] * 5, (1, 1), (2, 301), (199, 3), (97, 101)]
    files = [image_file(rng.integers(0, 256, (*each, 3)).astype("uint8")) for each in sizes]
    usual, odd = files[:5], files[5:]
    return {"images": usual, "odd and broken images": [*odd, b"", odd[0][:-9], b"\xff\xd8\xff"]}


def _histories(manifest: dict[str, Any]) -> dict[str, list[Any]]:
    """Return histories of several lengths, in which a third of the numbers is missing."""
    rng = np.random.default_rng(1)

    def history(length: int, scale: float) -> dict[str, list[float]]:
        columns = manifest["source"]["columns"]
        numbers = scale * rng.normal(size=(len(columns), length))
        numbers[rng.random(numbers.shape) < 1 / 3] = np.nan
        made = dict(zip(columns, numbers, strict=True))
        made["time"] = np.sort(scale * rng.normal(size=length))
        return {name: x.tolist() for name, x in made.items()}

    odd = [history(length, 1e28) for length in (0, 1, 97)] + [history(3, 0.0)]
    return {"histories": [history(n, 3.0) for n in (1, 2, 3, 5, 11)], "odd histories": odd}


def _said_by_run(runs: list[Any], sources: list[Any], settings: dict) -> list[str | float]:
    from training.decode.search import Search
    from training.decode.texts import make_translator

    names = {field.name for field in fields(Search)} - {"num_results", "precision"}
    search = Search(**{name: settings[name] for name in names & set(settings)})
    return [*make_translator(runs, search)(sources)]


def _predicted_by_run(runs: list[Any], sources: list[Any], settings: dict) -> list[str | float]:
    import tensorflow as tf

    from training.decode.labels import predict

    columns = {k: tf.constant(x, tf.float32) for k, x in padded_columns(sources).items()}
    probabilities, _ = predict([run.model for run in runs], runs[0].source.read(**columns))
    return [*probabilities.numpy().tolist()]


KINDS = {
    "translate": Kind(
        model=LocalTranslator,
        questions={
            "translate": lambda model, texts: model.translate(texts),
            "nbest": lambda model, texts: model.nbest(texts),
            "align": lambda model, texts: model.align(texts),
            "score": lambda model, texts: model.score(texts, texts[::-1]),
        },
        says="text",
        sources=_texts,
        by_run=_said_by_run,
    ),
    "read": Kind(
        model=LocalReader,
        questions={
            "read": lambda model, images: model.read(images, keep_errors=True),
            "nbest": lambda model, images: model.nbest(images, keep_errors=True),
            "regions": lambda model, images: model.regions(images, keep_errors=True),
        },
        says="text",
        sources=_images,
        by_run=_said_by_run,
    ),
    "predict": Kind(
        model=LocalPredictor,
        questions={"predict": lambda model, histories: model.outcome(histories)},
        says="probability",
        sources=_histories,
        by_run=_predicted_by_run,
    ),
}
