"""Whether the weights that a SavedModel stores are there, finite, and stored once."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

from serving.check.graph import nodes_of

# Below this a repeated value may be chance, or costs nothing.
_SMALLEST_BYTES = 4096
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_SECOND_LIST = "_all_variables/"  # Keras's `model.export` stores what is in `variables/` here, too


def count_not_finite(array: np.ndarray) -> int:
    """How many values are NaN or infinite; none where the dtype has no such values."""
    dtype = tf.dtypes.as_dtype(array.dtype) if array.dtype != object else tf.string
    if not (dtype.is_floating or dtype.is_complex):
        return 0
    return int(array.size - np.isfinite(array).sum())


def check_weights(version_dir: Path, meta_graph: meta_graph_pb2.MetaGraphDef) -> list[str]:
    """Find weights, variables and constants of the graph, that are missing, wrong or there twice.

    The loader accepts a SavedModel without its variables, which fails on every request.
    """
    graph, variables = meta_graph.graph_def, version_dir / "variables" / "variables"
    arrays: dict[str, np.ndarray] = {}
    if variables.with_name("variables.index").is_file():
        reader = tf.train.load_checkpoint(str(variables))
        for name in sorted(set(reader.get_variable_to_shape_map()) - {_OBJECT_GRAPH}):
            if name.startswith(_SECOND_LIST):
                continue
            array = np.asarray(reader.get_tensor(name))
            arrays[name.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE")] = array
    elif any(node.op == "VarHandleOp" for node in graph.node):
        return ["the version is not complete: no variables/variables.index"]
    for node in nodes_of(graph):
        if node.op == "Const" and node.attr["value"].tensor.ByteSize() >= _SMALLEST_BYTES:
            arrays[f"constant {node.name}"] = tf.make_ndarray(node.attr["value"].tensor)
    findings: list[str] = []
    names: dict[bytes, str] = {}
    for name, array in arrays.items():
        if wrong := count_not_finite(array):
            findings.append(f"weights not finite: {name} has {wrong:,} of {array.size:,} values")
        if array.dtype == object or array.nbytes < _SMALLEST_BYTES:
            continue
        if (array == array.flat[0]).all():
            continue  # zeros of a bias, as many as there are
        digest = hashlib.sha256(f"{array.dtype}{array.shape}".encode() + array.tobytes()).digest()
        first = names.setdefault(digest, name)
        if first != name:
            findings.append(f"weights stored twice: {name} is {first} ({array.nbytes:,} bytes)")
    return findings
