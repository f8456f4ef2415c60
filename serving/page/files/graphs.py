"""An ONNX graph as JSON and numbers, for the runtime of `serving/page/engine`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx

# What `engine/operators.js` and `engine/graph.js` run.
_NAMES = """
    Abs Add And Cast Concat Conv CumSum Div Equal Exp Expand GRU Gather Greater GreaterOrEqual
    Identity LSTM LogSoftmax MatMul MatMulInteger Max MaxPool Mean Mul Neg Not Pad QuantizeLinear
    RNN Range ReduceLogSumExp ReduceMax ReduceMean ReduceSum Relu Reshape Scan Shape Sigmoid Slice
    Softmax Softplus Split Sqrt Squeeze Sub Sum Tanh TopK Transpose Unsqueeze Where
"""
OPERATORS = frozenset(_NAMES.split())
_PRODUCTS = ("MatMul", "MatMulInteger")
_ALIGNMENT = 4


class Numbers:
    """Arrays one after the other, each stored once."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, bytes], int] = {}
        self._end = 0

    def add(self, array: np.ndarray) -> int:
        """Return the place of an array's numbers, in bytes."""
        key = str(array.dtype), array.tobytes()
        if key not in self._places:
            self._places[key] = self._end
            self._end += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        return self._places[key]

    def tobytes(self) -> bytes:
        """Return all of them."""
        return b"".join(
            numbers.ljust(-(-len(numbers) // _ALIGNMENT) * _ALIGNMENT, b"\0")
            for _, numbers in self._places
        )


def read_graph(path: Path, numbers: Numbers) -> dict[str, Any]:
    """Return a graph's nodes by operator and names, and where its constants are.

    Args:
        path: of the graph.
        numbers: where its constants are added.

    Raises:
        ValueError: for a graph that cannot be read, or one with an operator that has no form here.
    """
    try:
        graph = onnx.load(str(path)).graph
    except Exception as error:  # protobuf's and onnx's have no class in common
        raise ValueError(f"{path} cannot be read: {str(error).splitlines()[0]}") from None
    if unknown := sorted({node.op_type for node in _nodes(graph)} - OPERATORS):
        raise ValueError(f"{path} has operators without a form in JavaScript: {', '.join(unknown)}")
    return _written(graph, numbers)


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)


def _written(graph: onnx.GraphProto, numbers: Numbers) -> dict[str, Any]:
    multiplied = {node.input[1] for node in _nodes(graph) if node.op_type in _PRODUCTS}
    constants, kernels = {}, {}
    for proto in graph.initializer:
        array = onnx.numpy_helper.to_array(proto)
        if array.dtype == np.int64:
            array = array.astype("int32")  # JavaScript's are slow
        described = [str(array.dtype), list(array.shape)]
        if proto.name in multiplied and array.ndim == 2:
            columns = _columns(array)
            kernels[proto.name] = [*described, numbers.add(columns), len(columns)]
        else:
            constants[proto.name] = [*described, numbers.add(array)]
    return {
        "inputs": [each.name for each in graph.input],
        "outputs": [each.name for each in graph.output],
        "constants": constants,
        "kernels": kernels,
        "nodes": [
            [node.op_type, list(node.input), list(node.output), _attributes(node, numbers)]
            for node in graph.node
        ],
    }


def _columns(kernel: np.ndarray) -> np.ndarray:
    """Return a kernel's columns one after the other, without those of zeros at its end.

    So a kernel that is the transpose of an embedding table is stored once with it.
    """
    used = np.flatnonzero(kernel.any(0))
    return np.ascontiguousarray(kernel.T[: used[-1] + 1 if used.size else 0])


def _attributes(node: onnx.NodeProto, numbers: Numbers) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for attribute in node.attribute:
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, onnx.GraphProto):
            value = _written(value, numbers)
        elif isinstance(value, bytes):
            value = value.decode()
        elif node.op_type == "Cast":
            value = str(onnx.helper.tensor_dtype_to_np_dtype(value))
        found[attribute.name] = list(value) if isinstance(value, (list, tuple)) else value
    return found
