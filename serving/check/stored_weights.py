"""Whether the weights that a SavedModel stores are finite, and stored once."""

import hashlib
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

from serving.check.graph import nodes_of

# Below this a repeated value may be chance, or costs nothing.
_SMALLEST_BYTES = 4096
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(f"{array.dtype}{array.shape}".encode() + array.tobytes()).hexdigest()


def _is_constant(array: np.ndarray) -> bool:
    return bool((array == array.flat[0]).all())


def count_not_finite(array: np.ndarray) -> int:
    """How many values are NaN or infinite; none where the dtype has no such values."""
    dtype = tf.dtypes.as_dtype(array.dtype) if array.dtype != object else tf.string
    if not (dtype.is_floating or dtype.is_complex):
        return 0
    return int(array.size - np.isfinite(array).sum())


def check_weights(version_dir: Path, meta_graph: meta_graph_pb2.MetaGraphDef) -> list[str]:
    """Weights that are not finite or are stored twice, and bytes that belong to no variable.

    Weights are variables, and constants of the graph.
    """
    prefix = version_dir / "variables" / "variables"
    if not prefix.with_name("variables.index").is_file():
        return []
    reader = tf.train.load_checkpoint(str(prefix))
    findings: list[str] = []
    seen: dict[str, str] = {}

    def look(name: str, array: np.ndarray) -> None:
        if wrong := count_not_finite(array):
            findings.append(f"weights not finite: {name} has {wrong:,} of {array.size:,} values")
        if array.dtype == object or array.nbytes < _SMALLEST_BYTES or _is_constant(array):
            return
        first = seen.setdefault(_digest(array), name)
        if first != name:
            findings.append(f"weights stored twice: {name} is {first} ({array.nbytes:,} bytes)")

    total = 0
    for name in sorted(reader.get_variable_to_shape_map()):
        array = np.asarray(reader.get_tensor(name))
        if array.dtype == object:
            total += sum(len(text) for text in array.flat)
        else:
            total += array.nbytes
        if name != _OBJECT_GRAPH:
            look(name.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE"), array)
    stored = sum(shard.stat().st_size for shard in prefix.parent.glob("variables.data-*"))
    if stored > total * 1.01 + 65536:
        findings.append(f"variables files hold {stored:,} bytes for variables of {total:,} bytes")

    for node in nodes_of(meta_graph.graph_def):
        if node.op == "Const" and node.attr["value"].tensor.ByteSize() >= _SMALLEST_BYTES:
            look(f"constant {node.name}", np.asarray(tf.make_ndarray(node.attr["value"].tensor)))
    return findings
