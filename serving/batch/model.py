"""A SavedModel in a worker process."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from serving.batch.kinds import Kind
from serving.client.events import TIME, history_columns
from training.command.errors import UserError


class ModelError(UserError):
    """A directory that holds no model of this kind."""


def latest_version(path: Path) -> Path:
    """Return a model's newest version directory, or the path itself if it is one.

    Raises:
        ModelError: if there is none.
    """
    if (path / "saved_model.pb").is_file():
        return path.resolve()
    versions = [entry for entry in path.glob("*") if entry.name.isdecimal()]
    versions = [entry for entry in versions if (entry / "saved_model.pb").is_file()]
    if not versions:
        raise ModelError(f"{path} holds no exported model: python -m serving.export makes one")
    return max(versions, key=lambda entry: int(entry.name)).resolve()


def load(version: Path, kind: Kind, threads: int) -> Model:
    """Load what answers items of a kind, once a process; see `Model`."""
    return _MODELS[kind.signature](version, threads)


class Model(ABC):
    """One signature of an export.

    Args:
        version: its version directory.
        threads: of the processor for each batch.

    Raises:
        ModelError: if it cannot be loaded, or has no such signature.
    """

    signature: ClassVar[str]

    def __init__(self, version: Path, threads: int) -> None:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        import tensorflow as tf
        import tensorflow_text  # noqa: F401 - registers its ops

        try:
            tf.config.threading.set_intra_op_parallelism_threads(threads)
            tf.config.threading.set_inter_op_parallelism_threads(threads)
        except RuntimeError:  # TensorFlow runs already, with threads of its own
            pass
        try:
            self._loaded = tf.saved_model.load(str(version))
            self._function = self._loaded.signatures[self.signature]
        except KeyError:
            raise ModelError(f"{version} has no signature `{self.signature}`") from None
        except Exception as error:
            raise ModelError(f"cannot load {version}: {str(error).splitlines()[0]}") from error

    @abstractmethod
    def __call__(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return an answer for each value."""

    def _ask(self, names: Sequence[str], **inputs: Any) -> Iterator[tuple]:
        """Return these outputs for each value."""
        found = self._function(**inputs)
        return zip(*(found[name].numpy() for name in names), strict=True)


class Translator(Model):
    """Texts to translations."""

    signature = "translate"

    def __call__(self, values: Sequence[str]) -> list[tuple[str, float, bool]]:
        """Return translation, score, and whether the text was too long, of each text."""
        import tensorflow as tf

        texts = tf.constant([text.encode() for text in values], tf.string)
        return [
            (text.decode("utf-8", "replace"), float(score), bool(truncated))
            for text, score, truncated in self._ask(
                ("translation", "score", "truncated"), text=texts
            )
        ]


class Reader(Model):
    """Images to the texts in them."""

    signature = "read"

    def __call__(self, values: Sequence[bytes]) -> list[tuple[str, float] | ValueError]:
        """Return text and score of each file; where one is broken, the others are read without."""
        import tensorflow as tf

        try:
            found = self._ask(("text", "score"), image_bytes=tf.constant(list(values), tf.string))
            return [(text.decode("utf-8", "replace"), float(score)) for text, score in found]
        except tf.errors.InvalidArgumentError as error:
            if len(values) == 1:
                return [ValueError(_reason(error.message))]
        half = len(values) // 2
        return self(values[:half]) + self(values[half:])


class Predictor(Model):
    """Histories to the probability of an outcome."""

    signature = "predict"

    def __call__(self, values: Sequence[dict[str, list[str]]]) -> list[float | ValueError]:
        """Return the probability after each history; what it has beyond the model is left out."""
        import tensorflow as tf

        inputs = list(self._function.structured_input_signature[1])
        found: list[Any] = []
        for history in values:
            try:
                found.append(history_columns(history, inputs, ignore=True))
            except ValueError as error:
                found.append(error)
        good = [one for one in found if isinstance(one, dict)]
        if not good:
            return found
        shape = len(good), max(len(one[TIME]) for one in good)
        columns = {name: np.full(shape, np.nan, np.float32) for name in inputs}
        for row, one in enumerate(good):
            for name in inputs:
                columns[name][row, : len(one[name])] = one[name]
        asked = {name: tf.constant(column) for name, column in columns.items()}
        said = iter([float(probability) for (probability,) in self._ask(("probability",), **asked)])
        return [next(said) if isinstance(one, dict) else one for one in found]


def _reason(message: str) -> str:
    """Return what an export says of the one image it was given."""
    found = re.search(r"image_bytes\[0\] ([^\]\n']+)", message)
    return found[1].strip() if found else "not an image that can be read"


_MODELS: dict[str, type[Model]] = {made.signature: made for made in (Translator, Reader, Predictor)}
