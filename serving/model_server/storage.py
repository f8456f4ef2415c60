"""Model versions on disk: `<base path>/<number>`, a SavedModel each."""

import re
from pathlib import Path

from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2

_VARIABLE_OPS = {"VarHandleOp", "VariableV2", "Variable"}
_SHARD = re.compile(r"variables\.data-\d{5}-of-(\d{5})")

Fingerprint = tuple[tuple[str, int, int], ...]


def list_versions(base_path: Path) -> dict[int, Path]:
    """Version directories below `base_path` by number; empty where it does not exist."""
    try:
        children = list(base_path.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return {
        int(child.name): child
        for child in children
        if child.name.isascii() and child.name.isdecimal() and child.is_dir()
    }


def fingerprint(version_dir: Path) -> Fingerprint:
    """Name, size and time of every file: it changes while a version is being copied."""
    found = []
    for path in sorted(version_dir.rglob("*")):
        try:
            stat = path.stat()
        except FileNotFoundError:
            continue
        found.append((str(path.relative_to(version_dir)), stat.st_size, stat.st_mtime_ns))
    return tuple(found)


def missing_part(version_dir: Path) -> str | None:
    """What a version still lacks to be loaded, or None where it is complete.

    The loader takes a SavedModel without its variables for one that has none, so a half-copied
    version would load and fail on every request.
    """
    model_file = version_dir / "saved_model.pb"
    try:
        saved_model = saved_model_pb2.SavedModel.FromString(model_file.read_bytes())
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
    shards = [match for path in variables.iterdir() if (match := _SHARD.fullmatch(path.name))]
    if not shards or len(shards) != int(shards[0][1]):
        return "variables/variables.data-*"
    return None
