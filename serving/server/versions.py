"""Versions on disk: `<base path>/<number>`, a SavedModel or an ONNX export, found and loaded."""

import base64
import os
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from google.protobuf.message import Message

from serving.savedmodel.status import Code, StatusError
from serving.server.tensors import DTYPES

if TYPE_CHECKING:
    from serving.savedmodel.session import ModelSession
    from serving.server.onnx_model import OnnxModel

    LoadedModel: TypeAlias = ModelSession | OnnxModel

_MOST_DIGITS = 19  # of an int64
_TEXT = b"A text to try the model with."
# A PNG of 96 by 48 pixels, half white and half black.
_IMAGE = base64.b64decode(
    b"iVBORw0KGgoAAAANSUhEUgAAAGAAAAAwCAAAAADLfSATAAAALElEQVR42u3NMQ0AAAwDoPo3vWno2QQMkCul"
    b"JRAIBAKBQCAQCAQCgUAgWAoeNe73eXJFIS8AAAAASUVORK5CYII="
)

Fingerprint = tuple[tuple[str, int, int, int, int], ...]


def find_versions(base_path: Path) -> dict[int, Path]:
    """Version directories below `base_path` by number. Raises OSError.

    A number that is not an int64 is no version, as in TensorFlow Serving.
    """
    return {
        int(child.name): child
        for child in base_path.iterdir()
        if child.name.isascii()
        and child.name.isdecimal()
        and len(child.name.lstrip("0")) <= _MOST_DIGITS
        and int(child.name) < 2**63
        and child.is_dir()
    }


def fingerprint(version_dir: Path) -> Fingerprint:
    """Name, size, times of content and of status, and inode of every file of a version.

    It changes while a version is copied, by chmod, and where a file is replaced by another. Raises
    OSError for what is neither file nor folder: reading a pipe would never end.
    """
    stats = []
    for folder, folders, files in os.walk(version_dir):
        for name in (*folders, *files):
            path = Path(folder, name)
            try:
                # Working links are followed: models often consist of links.
                stat = path.stat() if path.exists() else path.lstat()
            except FileNotFoundError:
                continue
            if not (S_ISREG(stat.st_mode) or S_ISDIR(stat.st_mode)):
                raise OSError(f"{path} is not a file")
            times = stat.st_mtime_ns, stat.st_ctime_ns
            stats.append((str(path.relative_to(version_dir)), stat.st_size, *times, stat.st_ino))
    return tuple(sorted(stats))


def is_onnx(version_dir: Path) -> bool:
    """Whether a version is the folder of an ONNX export."""
    return (version_dir / "manifest.json").is_file()


def load(path: Path, seconds: float) -> "LoadedModel":
    """Load a version and run each of its signatures once. Raises StatusError.

    An ONNX export must answer. A SavedModel may refuse what it is tried with, since it may be any.

    Args:
        path: of the version.
        seconds: that a run may take.
    """
    refusals: tuple[Code, ...] = ()
    model: LoadedModel
    if is_onnx(path):
        from serving.server.onnx_model import OnnxModel

        model = OnnxModel(path)
    else:
        import training.command.startup  # noqa: F401

        from serving.savedmodel.session import ModelSession

        model = ModelSession(path)
        refusals = (Code.INVALID_ARGUMENT, Code.OUT_OF_RANGE)
    for name, signature in model.signatures.items():
        inputs = {alias: _sample(alias, info) for alias, info in signature.inputs.items()}
        try:
            if inputs:
                model.run(name, inputs, (), seconds)
        except StatusError as error:
            if error.code not in refusals:
                model.close()
                raise StatusError(error.code, f"signature {name}: {error.message}") from error
    return model


def _sample(alias: str, info: Message) -> np.ndarray:
    """One row for an input: a text, an image or zeros."""
    sizes = [dim.size if dim.size > 0 else 1 for dim in info.tensor_shape.dim]
    values = np.zeros(sizes, DTYPES[info.dtype].numpy if info.dtype in DTYPES else "float32")
    if values.dtype == object:
        values[...] = _IMAGE if alias == "image_bytes" else _TEXT
    return values
