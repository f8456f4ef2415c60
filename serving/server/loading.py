"""Loads a version: a SavedModel or an ONNX export, as its directory shows."""

import argparse
from functools import cached_property
from pathlib import Path
from typing import Any

from serving.server import storage
from serving.server.servable import LoadedModel


class Loader:
    """Loads models. The first model of a runtime imports it, since TensorFlow takes seconds."""

    def __init__(self, arguments: argparse.Namespace):
        self._arguments = arguments

    def load(self, path: Path) -> LoadedModel:
        """Load a version: a SavedModel, or the folder of an ONNX export. Raises StatusError."""
        if storage.is_onnx(path):
            from serving.server.onnx_model import OnnxModel

            return OnnxModel(path, max(1, self._arguments.tensorflow_intra_op_parallelism))
        import training.command.startup  # noqa: F401

        from serving.savedmodel.model import SavedModel

        return SavedModel(path, self._arguments.saved_model_tags.split(","), self._threads)

    @cached_property
    def _threads(self) -> Any:
        from serving.savedmodel.op_threads import OpThreads

        return OpThreads(
            self._arguments.tensorflow_inter_op_parallelism,
            self._arguments.tensorflow_intra_op_parallelism,
        )
