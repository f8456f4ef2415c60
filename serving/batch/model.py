"""A SavedModel in a worker process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from serving.batch.kind import Kind
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


class Model:
    """The signature of an export that answers items of a kind; loaded once a process.

    Raises:
        ModelError: if it cannot be loaded, or has no such signature.
    """

    def __init__(self, version: Path, kind: Kind, threads: int) -> None:
        import training.command.startup  # noqa: F401

        import tensorflow as tf
        import tensorflow_text  # noqa: F401 - registers its ops

        try:
            tf.config.threading.set_intra_op_parallelism_threads(threads)
            tf.config.threading.set_inter_op_parallelism_threads(threads)
        except RuntimeError:  # TensorFlow runs already, with threads of its own
            pass
        self._kind = kind
        try:
            self._loaded = tf.saved_model.load(str(version))
            self._function = self._loaded.signatures[kind.signature]
        except KeyError:
            raise ModelError(f"{version} has no signature `{kind.signature}`") from None
        except Exception as error:
            raise ModelError(f"cannot load {version}: {str(error).splitlines()[0]}") from error

    def __call__(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return an answer for each value."""
        return self._kind.answer(self._function, values)
