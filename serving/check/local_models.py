"""The kinds of ONNX exports: the questions of their check, and the expected answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from serving.check.texts import HARD_TEXTS, TEXTS
from serving.client.file_kinds import IMAGE, image_file
from serving.client.histories import padded_columns
from serving.client.local import LocalPredictor, LocalReader, LocalTranslator
from serving.client.local.model import LocalModel

Asked = Callable[[Any, list[Any]], list[Any]]


class Kind(ABC):
    """A kind of export.

    Attributes:
        model: its class.
        asked: the question to a model about sources, by signature; the first is the main one.
        says: the attribute of an answer to the main one, and the output of a SavedModel.
        settings: of the manifest; a SavedModel is compared if its own are the same.
    """

    model: ClassVar[Callable[..., LocalModel]]
    asked: ClassVar[dict[str, Asked]]
    says: ClassVar[tuple[str, str]]
    settings: ClassVar[tuple[str, ...]] = ("beam_width", "length_penalty")

    @abstractmethod
    def sources(self, manifest: dict[str, Any]) -> dict[str, list[Any]]:
        """Return sources by their name in findings; the first are usual ones."""

    @abstractmethod
    def inputs(self, sources: list[Any]) -> dict[str, Any]:
        """Return the inputs of a SavedModel."""

    def found(self, model: Any, sources: list[Any]) -> list[str | float]:
        """Return a model's answers to the main question."""
        ask = next(iter(self.asked.values()))
        return [getattr(each, self.says[0]) for each in ask(model, sources)]

    def by_run(self, runs: list[Any], sources: list[Any], settings: dict) -> list[str | float]:
        """Return the runs' answers to the main question."""
        from training.decode.asked import Search
        from training.decode.texts import make_translator

        asked = Search(**{name: settings[name] for name in self.settings if name in settings})
        return [*make_translator(runs, asked)(sources)]

    def by_saved_model(self, version_dir: Path, sources: list[Any]) -> list[str | float]:
        """Return a SavedModel's answers to the main question."""
        import tensorflow as tf  # takes seconds

        from serving.savedmodel.session import ModelSession

        protos = {name: tf.make_tensor_proto(x) for name, x in self.inputs(sources).items()}
        with ModelSession(version_dir) as session:
            signature = session.signatures[next(iter(self.asked))]
            found = session.run(signature, protos)[self.says[1]].tolist()
        return [one.decode() if isinstance(one, bytes) else one for one in found]


class Translators(Kind):
    """Translators."""

    model = LocalTranslator
    asked: ClassVar[dict[str, Asked]] = {
        "translate": lambda model, texts: model.translate(texts),
        "nbest": lambda model, texts: model.nbest(texts),
        "align": lambda model, texts: model.align(texts),
        "score": lambda model, texts: model.score(texts, texts[::-1]),
    }
    says = ("text", "translation")
    settings = (*Kind.settings, "max_source_length", "coverage_penalty", "replaces_unknown")

    def sources(self, manifest: dict[str, Any]) -> dict[str, list[Any]]:
        """Return texts."""
        groups = {"texts": TEXTS, "empty, long and invalid texts": HARD_TEXTS}
        return {
            name: [text.decode("utf-8", "replace") for text in texts]
            for name, texts in groups.items()
        }

    def inputs(self, sources: list[Any]) -> dict[str, Any]:
        """Return texts."""
        return {"text": [text.encode() for text in sources]}


class Readers(Kind):
    """Readers of images."""

    model = LocalReader
    asked: ClassVar[dict[str, Asked]] = {
        "read": lambda model, images: model.read(images, keep_errors=True),
        "nbest": lambda model, images: model.nbest(images, keep_errors=True),
        "regions": lambda model, images: model.regions(images, keep_errors=True),
    }
    says = ("text", "text")

    def sources(self, manifest: dict[str, Any]) -> dict[str, list[Any]]:
        """Return noise of the model's size and of others."""
        rng = np.random.default_rng(1)
        size = manifest["source"]["height"], manifest["source"]["width"]
        sizes = [*[size] * 5, (1, 1), (2, 301), (199, 3), (97, 101)]
        usual, odd = (
            [image_file(rng.integers(0, 256, (*each, 3)).astype("uint8")) for each in group]
            for group in (sizes[:5], sizes[5:])
        )
        return {"images": usual, "odd and broken images": [*odd, b"", odd[0][:-9], b"\xff\xd8\xff"]}

    def inputs(self, sources: list[Any]) -> dict[str, Any]:
        """Return files."""
        return IMAGE.inputs(sources)


class Predictors(Kind):
    """Models of histories."""

    model = LocalPredictor
    asked: ClassVar[dict[str, Asked]] = {
        "predict": lambda model, histories: model.outcome(histories),
    }
    says = ("probability", "probability")
    settings = ()

    def sources(self, manifest: dict[str, Any]) -> dict[str, list[Any]]:
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

    def inputs(self, sources: list[Any]) -> dict[str, Any]:
        """Return columns."""
        return {k: np.array(x, "float32") for k, x in padded_columns(sources).items()}

    def by_run(self, runs: list[Any], sources: list[Any], settings: dict) -> list[str | float]:
        """Return probabilities."""
        import tensorflow as tf

        from training.decode.labels import predict

        columns = {name: tf.constant(x) for name, x in self.inputs(sources).items()}
        probabilities, _ = predict([run.model for run in runs], runs[0].source.read(**columns))
        return [*probabilities.numpy().tolist()]


KINDS: dict[str, Kind] = {"translate": Translators(), "read": Readers(), "predict": Predictors()}
