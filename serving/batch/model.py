"""A SavedModel in a worker process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from training.errors import UserError


class ModelError(UserError):
    """A directory that holds no translator."""


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
    """A translator, loaded once a process.

    Args:
        version: its version directory.
        threads: of the processor for each text batch.

    Raises:
        ModelError: if it cannot be loaded, or has no signature `translate`.
    """

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
            self._translate = self._loaded.signatures["translate"]
        except KeyError:
            raise ModelError(f"{version} has no signature `translate`") from None
        except Exception as error:
            raise ModelError(f"cannot load {version}: {str(error).splitlines()[0]}") from error

    def __call__(self, texts: Sequence[str]) -> list[tuple[str, float, bool]]:
        """Return translation, score, and whether the text was too long, of each text."""
        import tensorflow as tf

        found = self._translate(text=tf.constant([text.encode() for text in texts], tf.string))
        columns = (found[name].numpy() for name in ("translation", "score", "truncated"))
        return [
            (text.decode("utf-8", "replace"), float(score), bool(truncated))
            for text, score, truncated in zip(*columns, strict=True)
        ]
