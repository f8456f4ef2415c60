"""Whether a SavedModel answers through the C++ loader, and as it does in Python."""

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from serving.session import ModelSession
from serving.status import StatusError

_TEXTS = (
    b"She is eating a green apple.",
    "Il n'aime pas les pommes : été.".encode(),
    "他不喜欢苹果。".encode(),
)
_HARD_TEXTS = (
    b"",
    b" ".join([b"word"] * 2000),
    b"\xff\xfe invalid \x80 UTF-8",
    b"NUL \x00 inside",
    b"a short text",
)
_PREDICT = "tensorflow/serving/predict"
_TOLERANCE = 1e-4
_OTHER_DIMENSION = 3

Inputs = dict[str, np.ndarray]


def _batches(signature: meta_graph_pb2.SignatureDef) -> Iterator[tuple[str, Inputs]]:
    """(what it is, inputs) of several batches for a signature."""
    texts = all(info.dtype == tf.string.as_datatype_enum for info in signature.inputs.values())
    for size in (1, 3, 0, 17):
        values = [_TEXTS[row % len(_TEXTS)] for row in range(size)]
        yield (
            f"a batch of {size}",
            {alias: _values(info, values) for alias, info in signature.inputs.items()},
        )
    if texts and signature.inputs:
        yield (
            "empty, long and invalid texts",
            {alias: _values(info, _HARD_TEXTS) for alias, info in signature.inputs.items()},
        )


def _values(info: meta_graph_pb2.TensorInfo, texts: list[bytes]) -> np.ndarray:
    dims = [dim.size for dim in info.tensor_shape.dim]
    if not info.tensor_shape.unknown_rank and not dims:
        shape = ()
    else:
        rest = [_OTHER_DIMENSION if size < 0 else size for size in dims[1:]]
        shape = (len(texts), *rest)
    if info.dtype == tf.string.as_datatype_enum:
        column = np.array([*texts], object).reshape((-1, *[1] * (len(shape) - 1)))
        return np.broadcast_to(column, shape) if shape else np.array(_TEXTS[0], object)
    ramp = np.arange(int(np.prod(shape))).reshape(shape) % 2
    return ramp.astype(tf.dtypes.as_dtype(info.dtype).as_numpy_dtype)


def check_answers(version_dir: Path, session: ModelSession) -> list[str]:
    """Signatures that fail, lose the batch, or answer otherwise than in Python: a line each.

    Signatures of Classify and Regress take examples that only their author knows how to make:
    the warm-up records exercise them.
    """
    try:
        loaded = tf.saved_model.load(str(version_dir))
    except Exception as error:
        return [f"Python cannot load it: {_first_line(error)}"]
    # Two names of one function are checked once.
    names = {
        _computation(session.meta_graph.graph_def, signature): name
        for name, signature in sorted(session.signatures.items())
        if not name.startswith("__") and signature.method_name == _PREDICT
    }.values()

    def check(name: str) -> str | None:
        return _check_signature(name, session.signatures[name], session, loaded.signatures[name])

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [finding for finding in pool.map(check, names) if finding]


def _computation(
    graph: graph_pb2.GraphDef, signature: meta_graph_pb2.SignatureDef
) -> frozenset[tuple[str, ...]]:
    """What makes each output: the functions behind the signature's own, or the tensor itself."""
    nodes = {node.name: node for node in graph.node}
    functions = {function.signature.name: function for function in graph.library.function}
    found = set()
    for alias, info in signature.outputs.items():
        node = nodes[info.name.partition(":")[0]]
        body = functions.get(node.attr["f"].func.name) if "f" in node.attr else None
        inner = [n.attr["f"].func.name for n in body.node_def if "f" in n.attr] if body else []
        found.add((alias, *(inner or [info.name])))
    return frozenset(found)


def _check_signature(
    name: str,
    signature: meta_graph_pb2.SignatureDef,
    session: ModelSession,
    python: tf.types.experimental.ConcreteFunction,
) -> str | None:
    for what, inputs in _batches(signature):
        protos = {alias: tf.make_tensor_proto(array) for alias, array in inputs.items()}
        try:
            found = session.run(signature, protos)
        except StatusError as error:
            return f"signature {name} fails on {what}: {error.code.name}: {_first_line(error)}"
        batched = [array.shape[0] for array in inputs.values() if array.ndim]
        for alias, array in sorted(found.items()):
            if batched and (array.ndim == 0 or array.shape[0] != batched[0]):
                return (
                    f"signature {name}, output {alias}: shape {array.shape} on {what}; the first "
                    "dimension must be the batch"
                )
        tensors = {alias: tf.constant(array) for alias, array in inputs.items()}
        try:
            expected = {alias: tensor.numpy() for alias, tensor in python(**tensors).items()}
        except tf.errors.OpError as error:
            return f"signature {name} fails in Python on {what}: {_first_line(error)}"
        if alias := _different(found, expected):
            return f"signature {name}, output {alias}: not what Python answers on {what}"
    return None


def _different(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> str | None:
    """The first output that differs, or None.

    Where a row's numbers agree its texts may differ: two hypotheses whose scores differ in the
    last bit only may be found in either order.
    """
    if not all(found[alias].shape == expected[alias].shape for alias in found):
        return next(a for a in sorted(found) if found[a].shape != expected[a].shape)
    inexact = [alias for alias in sorted(found) if np.issubdtype(found[alias].dtype, np.inexact)]
    for alias in inexact:
        if not np.allclose(
            found[alias], expected[alias], rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True
        ):
            return alias
    if inexact:
        return None
    return next((a for a in sorted(found) if (found[a] != expected[a]).any()), None)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
