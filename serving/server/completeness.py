"""Model versions that lack a file, such as those that are being copied."""

import json
import re
from pathlib import Path

from google.protobuf.message import DecodeError, Message

from serving.client.protobuf import message
from serving.server.storage import ONNX_MANIFEST, is_onnx

_VARIABLE_OPS = {"VarHandleOp", "VariableV2", "Variable"}
_SavedModel = message("SavedModel", "tensorflow")
_ONNX_WEIGHTS = "weights.bin"
_SHARD = re.compile(r"variables\.data-\d{5}-of-(\d{5})")


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


def _missing_of_onnx(version_dir: Path) -> str | None:
    """As `missing_part`. The manifest names all other files."""
    try:
        about = json.loads((version_dir / ONNX_MANIFEST).read_bytes())
        graphs = [f"{name}.onnx" for name, one in about["graphs"].items() if isinstance(one, dict)]
        tokenizers = [one["file"] for one in about["tokenizers"].values()]
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"the rest of {ONNX_MANIFEST}"
    files = (*graphs, *tokenizers, _ONNX_WEIGHTS)
    return next((name for name in files if not (version_dir / name).is_file()), None)
