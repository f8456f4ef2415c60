"""Converts ONNX graphs to the form that the browser's runtime reads: JSON and constants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx

from serving.api._printing import first_line

# The operators that `engine/operators.js` and `engine/graph.js` run.
_NAMES = """
    Abs Add And Cast Concat Conv CumSum Div Equal Exp Expand GRU Gather Greater GreaterOrEqual
    Identity LSTM Log LogSoftmax MatMul MatMulInteger Max MaxPool Mean Mul Neg Not Pad
    QuantizeLinear RNN Range ReduceLogSumExp ReduceMax ReduceMean ReduceSum Relu Reshape Scan Shape
    Sigmoid Slice Softmax Softplus Split Sqrt Squeeze Sub Sum Tanh TopK Transpose Unsqueeze Where
"""
OPERATORS = frozenset(_NAMES.split())
_PRODUCTS = ("MatMul", "MatMulInteger")
_AFTER = ("Cast", "Mul", "Add")  # done by a product with its own numbers
_ALIGNMENT = 4
Names = frozenset[str]


class Node(NamedTuple):
    """An operator with the names of its inputs and outputs; it is written as a list."""

    op: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any]


class Numbers:
    """A buffer of arrays, one after another; equal arrays are stored once."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, bytes], int] = {}
        self._end = 0

    def add(self, array: np.ndarray) -> int:
        """Add an array; return the offset of its numbers, in bytes."""
        key = str(array.dtype), array.tobytes()
        if key not in self._places:
            self._places[key] = self._end
            self._end += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        return self._places[key]

    def tobytes(self) -> bytes:
        """Return the bytes of all arrays, each padded to `_ALIGNMENT`."""
        return b"".join(
            numbers.ljust(-(-len(numbers) // _ALIGNMENT) * _ALIGNMENT, b"\0")
            for _, numbers in self._places
        )


def read_graph(path: Path, numbers: Numbers) -> dict[str, Any]:
    """Return a graph as JSON values: its nodes, and the shapes and offsets of its constants.

    `numbers` receives the constants. Raises ValueError for a graph that cannot be read, or that
    has an operator outside `OPERATORS`.
    """
    try:
        graph = onnx.load(str(path)).graph
    except Exception as error:  # protobuf's and onnx's have no class in common
        raise ValueError(f"{path} cannot be read: {first_line(error)}") from None
    if unknown := sorted({node.op_type for node in nodes_of(graph)} - OPERATORS):
        raise ValueError(f"{path} has operators without a form in JavaScript: {', '.join(unknown)}")
    try:
        return _written(graph, numbers, frozenset(), frozenset())
    except Exception as error:  # NumPy's and onnx's, of a damaged graph
        raise ValueError(f"{path} cannot be read: {first_line(error)}") from None


def nodes_of(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a graph and of the loops in it."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from nodes_of(attribute.g)


def _written(
    graph: onnx.GraphProto, numbers: Numbers, kernels_outside: Names, rows_outside: Names
) -> dict[str, Any]:
    """Return a graph, or the body of a loop, as JSON values.

    `kernels_outside` and `rows_outside` name the enclosing graph's constants, which a body may use.
    """
    multiplied = {node.input[1] for node in nodes_of(graph) if node.op_type in _PRODUCTS}
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
    all_kernels = kernels_outside.union(kernels)
    rows = rows_outside.union(proto.name for proto in graph.initializer if len(proto.dims) < 2)
    nodes = [
        Node(
            node.op_type,
            list(node.input),
            list(node.output),
            _attributes(node, numbers, all_kernels, rows),
        )
        for node in graph.node
    ]
    outputs = [each.name for each in graph.output]
    uses = Counter([*outputs, *(name for node in nodes_of(graph) for name in node.input)])
    return {
        "inputs": [each.name for each in graph.input],
        "outputs": outputs,
        "constants": constants,
        "kernels": kernels,
        "nodes": _joined(nodes, all_kernels, rows, uses),
    }


def _joined(nodes: list[Node], kernels: Names, rows: Names, uses: Counter[str]) -> list[Node]:
    """Return the nodes, with each product by a kernel fused with the Cast, Mul and Add after it.

    An operator is fused only if no other node reads the product. The attribute `then` lists the
    fused operators; their operands follow the product's own two inputs.

    Args:
        nodes: of a graph, in order.
        kernels: names of constant matrices.
        rows: names of constants of at most one axis.
        uses: the number of readers of each value.
    """
    next_of = {name: node for node in nodes for name in node.inputs if uses[name] == 1}
    left = dict.fromkeys(map(id, nodes))
    for node in nodes:
        if node.op not in _PRODUCTS or node.inputs[1] not in kernels:
            continue
        then: list[str] = []
        while (after := next_of.get(node.outputs[0])) and after.op in _AFTER:
            others = [name for name in after.inputs if name != node.outputs[0]]
            # A scale for each row is known before the product.
            if rows.issuperset(others) or (after.op, then) == ("Mul", ["Cast"]):
                node.inputs[2 if not then else len(node.inputs) :] = others
                node.outputs[:] = after.outputs
                then.append(after.op)
                del left[id(after)]
            else:
                break
        if then:
            node.attributes["then"] = then
    return [node for node in nodes if id(node) in left]


def _columns(kernel: np.ndarray) -> np.ndarray:
    """Return the columns of a kernel `(k, m)` as rows `(m', k)`, without zero columns at the end.

    A kernel that is the transpose of an embedding table then has the table's bytes, and `Numbers`
    stores them once.
    """
    used = np.flatnonzero(kernel.any(0))
    return np.ascontiguousarray(kernel.T[: used[-1] + 1 if used.size else 0])


def _attributes(
    node: onnx.NodeProto, numbers: Numbers, kernels: Names, rows: Names
) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for attribute in node.attribute:
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, onnx.GraphProto):
            value = _written(value, numbers, kernels, rows)
        elif isinstance(value, bytes):
            value = value.decode()
        elif node.op_type == "Cast":
            value = str(onnx.helper.tensor_dtype_to_np_dtype(value))
        attributes[attribute.name] = list(value) if isinstance(value, (list, tuple)) else value
    return attributes
