"""Loads a version of a model, in either form, and tries its signatures."""

import threading
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from google.protobuf.message import Message

from serving.api._export_files import ONNX_MANIFEST
from serving.api._image_files import image_file
from serving.client._protobuf import DTYPES
from serving.loaded._status import Code, Deadline, StatusError
from training.command.native import start_tensorflow

if TYPE_CHECKING:
    from serving.loaded._onnx_model import OnnxModel
    from serving.loaded.saved_model import ModelSession

LoadedModel: TypeAlias = "ModelSession | OnnxModel"

_TEXT = b"A text to try the model with."
_IMAGE = image_file(np.zeros((48, 96), "uint8"))
_IMPORT_LOCK = threading.Lock()


def load(path: Path, seconds: float) -> LoadedModel:
    """Return a loaded version, after running each signature once for at most `seconds`.

    An ONNX export must answer the sample inputs. A SavedModel may reject them as invalid, because
    it may come from anywhere. Raises StatusError.
    """
    refusals: tuple[Code, ...] = ()
    model: LoadedModel
    if (path / ONNX_MANIFEST).is_file():
        from serving.loaded._onnx_model import OnnxModel

        model = OnnxModel(path)
    elif not any((path / f"saved_model.{ending}").is_file() for ending in ("pb", "pbtxt")):
        raise StatusError(Code.NOT_FOUND, f"{path} has no saved_model.pb and no {ONNX_MANIFEST}")
    else:
        with _IMPORT_LOCK:
            start_tensorflow()
            from serving.loaded.saved_model import ModelSession

        model = ModelSession(path)
        refusals = (Code.INVALID_ARGUMENT, Code.OUT_OF_RANGE)
    for name, signature in model.signatures.items():
        inputs = {alias: _sample(alias, info) for alias, info in signature.inputs.items()}
        try:
            if inputs:
                model.run(name, inputs, Deadline(seconds))
        except StatusError as error:
            if error.code not in refusals:
                model.close()
                raise StatusError(error.code, f"signature {name}: {error.message}") from error
    return model


def _sample(alias: str, info: Message) -> np.ndarray:
    """Return one row for an input, with 1 for each unknown size: a text, an image or zeros."""
    sizes = [dim.size if dim.size > 0 else 1 for dim in info.tensor_shape.dim]
    values = np.zeros(sizes, DTYPES[info.dtype][2] if info.dtype in DTYPES else "f")
    if values.dtype == object:
        values[...] = _IMAGE if alias == "image_bytes" else _TEXT
    return values
