"""Model versions on disk: `<base path>/<number>`, a SavedModel or the folder of an ONNX export."""

import json
import os
import re
from pathlib import Path

from google.protobuf.message import DecodeError, Message

from serving.client.protobuf import message

_VARIABLE_OPS = {"VarHandleOp", "VariableV2", "Variable"}
_SavedModel = message("SavedModel", "tensorflow")
_ONNX_MANIFEST, _ONNX_WEIGHTS = "manifest.json", "weights.bin"
_SHARD = re.compile(r"variables\.data-\d{5}-of-(\d{5})")

_MOST_DIGITS = 100

Fingerprint = tuple[tuple[str, int, int], ...]


def list_versions(base_path: Path) -> dict[int, Path]:
    """Version directories below `base_path` by number; none if it does not exist."""
    try:
        return read_versions(base_path)
    except (FileNotFoundError, NotADirectoryError):
        return {}


def read_versions(base_path: Path) -> dict[int, Path]:
    """As `list_versions`, but raise OSError if `base_path` cannot be read.

    A number that is not an int64 is no version, as in TensorFlow Serving.
    """
    return {
        int(child.name): child
        for child in base_path.iterdir()
        if child.name.isascii()
        and child.name.isdecimal()
        and len(child.name) <= _MOST_DIGITS
        and int(child.name) < 2**63
        and child.is_dir()
    }


def fingerprint(version_dir: Path) -> Fingerprint:
    """Name, size and time of every file. It changes while a version is being copied."""
    found = []
    for folder, folders, files in os.walk(version_dir, onerror=_raise):
        for name in (*folders, *files):
            path = Path(folder, name)
            try:
                # Working links are followed: models often consist of links.
                stat = path.stat() if path.exists() else path.lstat()
            except FileNotFoundError:
                continue
            found.append((str(path.relative_to(version_dir)), stat.st_size, stat.st_mtime_ns))
    return tuple(sorted(found))


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def is_onnx(version_dir: Path) -> bool:
    """Whether a version is the folder of an ONNX export."""
    return (version_dir / _ONNX_MANIFEST).is_file()


def _missing_of_onnx(version_dir: Path) -> str | None:
    """As `missing_part`. The manifest names all other files."""
    try:
        about = json.loads((version_dir / _ONNX_MANIFEST).read_bytes())
        graphs = [f"{name}.onnx" for name, one in about["graphs"].items() if isinstance(one, dict)]
        tokenizers = [one["file"] for one in about["tokenizers"].values()]
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"the rest of {_ONNX_MANIFEST}"
    files = (*graphs, *tokenizers, _ONNX_WEIGHTS)
    return next((name for name in files if not (version_dir / name).is_file()), None)


def missing_part(version_dir: Path, saved_model: Message | None = None) -> str | None:
    """The first missing file of a version, or None if it is complete.

    The loader accepts a SavedModel whose variables are missing, so a half-copied version would load
    and fail on every request. Raises OSError for a file that cannot be read.

    Args:
        version_dir: the version.
        saved_model: the content of its `saved_model.pb`, if it has been read already.
    """
    if saved_model is None:
        if is_onnx(version_dir):
            return _missing_of_onnx(version_dir)
        model_file = version_dir / "saved_model.pb"
        if model_file.exists() and not model_file.is_file():
            raise OSError(f"{model_file} is not a file")
        try:
            saved_model = _SavedModel.FromString(model_file.read_bytes())
        except FileNotFoundError:
            return "saved_model.pb"
        except DecodeError:
            return "the rest of saved_model.pb"
    nodes = (node.op for graph in saved_model.meta_graphs for node in graph.graph_def.node)
    if not saved_model.meta_graphs:
        return "the rest of saved_model.pb"
    if not any(op in _VARIABLE_OPS for op in nodes):
        return None
    variables = version_dir / "variables"
    if not (variables / "variables.index").is_file():
        return "variables/variables.index"
    shards = [
        match
        for path in variables.iterdir()
        if path.is_file() and (match := _SHARD.fullmatch(path.name))
    ]
    if not shards or len(shards) != int(shards[0][1]):
        return "variables/variables.data-*"
    return None
