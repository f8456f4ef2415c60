"""Builds ONNX graphs from formulas: Python's operators and calls add nodes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from serving.portable.write._constants import Constants

_INLINE_BYTES = 1024  # smaller ones are part of the graph
OPSET, _IR_VERSION = 21, 10
# The dtype of a node's first output, if it differs from the dtype of the first input.
_DTYPES = {
    "Shape": "int64",
    "NonZero": "int64",
    "ArgMax": "int64",
    "MatMulInteger": "int32",
    "QuantizeLinear": "uint8",
    **dict.fromkeys(("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"), "bool"),
    "IsNaN": "bool",
}


def _operator(op: str, swapped: bool = False) -> Callable[[Any, Any], Any]:
    """Return the method of `Value` that adds a node with another operand."""

    def method(self: Value, other: Any) -> Any:
        return self.graph(op, *((other, self) if swapped else (self, other)))

    return method


class Value:
    """An output of a node, or an input of a graph; its operators add nodes.

    Attributes:
        graph: the graph that the value belongs to.
        name: the value's name in the graph.
        dtype: NumPy's name of the dtype.
    """

    __array_ufunc__ = None  # an array on the left leaves the operator to this class

    def __init__(self, graph: Graph, name: str, dtype: str) -> None:
        self.graph, self.name, self.dtype = graph, name, dtype

    __add__, __radd__ = _operator("Add"), _operator("Add", swapped=True)
    __sub__, __rsub__ = _operator("Sub"), _operator("Sub", swapped=True)
    __mul__, __rmul__ = _operator("Mul"), _operator("Mul", swapped=True)
    __truediv__, __floordiv__, __mod__ = _operator("Div"), _operator("Div"), _operator("Mod")
    __matmul__ = _operator("MatMul")
    __gt__, __ge__, __lt__ = map(_operator, ("Greater", "GreaterOrEqual", "Less"))
    __and__, __or__ = _operator("And"), _operator("Or")

    def __invert__(self) -> Value:
        return self.graph("Not", self)

    def __neg__(self) -> Value:
        return self.graph("Neg", self)


Values = dict[str, Value]


def without_prefix(values: Values, prefix: str) -> Values:
    """Return the values whose names begin with a prefix, by name without the prefix."""
    return {k.removeprefix(prefix): x for k, x in values.items() if k.startswith(prefix)}


class _Scope:
    """The nodes and the small constants of a graph, or of the body of a loop."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[Any, onnx.TensorProto] = {}


class Graph:
    """A graph under construction. A call adds a node to the graph, or to the body of an open loop.

    Operators accept values, arrays and Python numbers. A number gets the dtype of the operator's
    first value. The graphs of a folder share `constants`.
    """

    def __init__(self, constants: Constants) -> None:
        self._shared = constants
        self._used: dict[str, onnx.TensorProto] = {}
        self._scopes = [_Scope()]
        self._numbers = itertools.count()
        self._inputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, dtype: str, *shape: str | int) -> Value:
        """Add an input of the whole graph; axes that vary have names."""
        self._inputs.append(_info(name, dtype, shape))
        return Value(self, name, dtype)

    def constant(self, value: Any, dtype: str | None = None) -> Value:
        """Add a constant: a large one is stored once for all graphs of the folder."""
        array = np.asarray(value, dtype or _dtype_of(value))
        if array.nbytes >= _INLINE_BYTES:
            proto = self._shared.add(array)
            self._used[proto.name] = proto
            return Value(self, proto.name, str(array.dtype))
        constants = self._scopes[-1].constants
        key = (str(array.dtype), array.shape, array.tobytes())
        if key not in constants:
            name = f"constant_{next(self._numbers)}"
            constants[key] = onnx.numpy_helper.from_array(array, name)
        return Value(self, constants[key].name, str(array.dtype))

    def __call__(self, op: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node of an ONNX operator; return its output, or a list of several outputs.

        Inputs are values, arrays or numbers, and None for an optional input that is left out.
        """
        typed = inputs[1:] if op == "Where" else inputs
        like = next((x.dtype for x in typed if isinstance(x, Value)), None)
        values = [x if x is None else self._as_value(x, like) for x in inputs]
        number = next(self._numbers)
        names = [f"{op}_{number}" if outputs == 1 else f"{op}_{number}_{i}" for i in range(outputs)]
        names_in = ["" if x is None else x.name for x in values]
        node = helper.make_node(op, names_in, names, name=f"{op}_{number}", **attributes)
        self._scopes[-1].nodes.append(node)
        first = values[1] if op == "Where" else values[0] if values else None
        dtype = _DTYPES.get(op) or (first.dtype if first else "float32")
        made = [Value(self, name, dtype) for name in names]
        return made[0] if outputs == 1 else made

    def _as_value(self, x: Any, like: str | None) -> Value:
        if isinstance(x, Value):
            return x
        return self.constant(x, like if isinstance(x, (int, float)) else None)

    # Shorthands for common operators.

    def cast(self, x: Value, dtype: str) -> Value:
        made: Value = self("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
        made.dtype = dtype
        return made

    def size(self, x: Value, axis: int) -> Value:
        """Return the size of an axis, int64 `(1,)`."""
        return self("Shape", x, start=axis, end=axis + 1)

    def shape(self, *sizes: Value | int) -> Value:
        """Return a shape, int64 `(rank,)`, of sizes that are int64 `(1,)` or numbers."""
        if all(isinstance(size, int) for size in sizes):
            return self.constant(sizes, "int64")
        each = [s if isinstance(s, Value) else self.constant([s], "int64") for s in sizes]
        return self("Concat", *each, axis=0)

    def reshape(self, x: Value, *sizes: Value | int) -> Value:
        """Reshape a value: the other sizes determine a size of -1; 0 keeps an axis's size."""
        return self("Reshape", x, self.shape(*sizes))

    def expand(self, x: Any, *sizes: Value | int) -> Value:
        """Repeat axes of size 1 up to these sizes."""
        return self("Expand", x if isinstance(x, Value) else self.constant(x), self.shape(*sizes))

    def axis(self, x: Value, axis: int) -> Value:
        return self("Unsqueeze", x, self.constant([axis], "int64"))

    def squeeze(self, x: Value, axis: int) -> Value:
        return self("Squeeze", x, self.constant([axis], "int64"))

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        return values[0] if len(values) == 1 else self("Concat", *values, axis=axis)

    def split(self, x: Value, sizes: Sequence[int], axis: int = -1) -> list[Value]:
        if len(sizes) == 1:
            return [x]
        parts: list[Value] = self(
            "Split", x, self.constant(sizes, "int64"), outputs=len(sizes), axis=axis
        )
        return parts

    def reduce(self, op: str, x: Value, axis: int, keep: bool = False) -> Value:
        """Reduce an axis with an operator such as ReduceSum; `keep` leaves the axis with size 1."""
        return self(op, x, self.constant([axis], "int64"), keepdims=int(keep))

    def gather(self, x: Value | np.ndarray, indices: Value, axis: int = 0) -> Value:
        return self("Gather", x, indices, axis=axis)

    def slice(self, x: Value, start: Any, end: Any, axis: int) -> Value:
        ends = [e if isinstance(e, Value) else self.constant([e], "int64") for e in (start, end)]
        return self("Slice", x, *ends, self.constant([axis], "int64"))

    def range(self, length: Value) -> Value:
        """Return 0 … length - 1, int64; `length` is int64 `(1,)`."""
        return self("Range", self.constant(0), self("Squeeze", length), self.constant(1))

    def top(self, x: Value, k: Value) -> tuple[Value, Value]:
        """Return the `k` greatest values of the last axis and their indices, greatest first."""
        values, places = self("TopK", x, k, outputs=2)
        places.dtype = "int64"
        return values, places

    # Loops.

    def loop(
        self,
        most: Value,
        state: Mapping[str, Value],
        body: Callable[[dict[str, Value]], tuple[Value, dict[str, Value], list[Value]]],
        outputs: int,
    ) -> tuple[dict[str, Value], list[Value]]:
        """Add a loop of at most `most` turns, int64 `()`.

        `body` takes the state, and returns whether there is another turn, the next state, and a
        list of `outputs` outputs. Returns the last state, and the outputs of all turns,
        `(turns, …)`.
        """
        turn, going = (f"{name}_{next(self._numbers)}" for name in ("turn", "going"))
        inner = self._open(state)
        again, new, out = body(inner)
        inputs = [_info(turn, "int64", ()), _info(going, "bool", ()), *_infos(inner)]
        results = [new[name] for name in state] + out
        graph = self._close("loop", inputs, [again, *results])
        node = [most, self.constant(True, "bool"), *state.values()]
        made = self("Loop", *node, outputs=len(state) + outputs, body=graph)
        return _states_and_outputs(state, made, results)

    def scan(
        self,
        state: Mapping[str, Value],
        steps: Mapping[str, Value],
        body: Callable[[dict[str, Value], dict[str, Value]], tuple[dict[str, Value], list[Value]]],
        ranks: Sequence[int],
        directions: Sequence[int] = (),
        output_directions: Sequence[int] = (),
    ) -> tuple[dict[str, Value], list[Value]]:
        """Add a scan over the first axis of `steps`.

        Args:
            state: before the first step, by name.
            steps: values by name; each step reads a slice of each.
            body: takes the state and the slices, and returns the next state and a list of outputs.
            ranks: the number of axes of each state, then of each output of a step.
            directions: of each of `steps`: 1 reads the value from its end.
            output_directions: of each output: 1 writes the output from its end.

        Returns:
            The last state, and the outputs of all steps, `(steps, …)`.
        """
        inner = self._open({**state, **steps})
        new, out = body({k: inner[k] for k in state}, {k: inner[k] for k in steps})
        results = [new[name] for name in state] + out
        made = self(
            "Scan",
            *state.values(),
            *steps.values(),
            outputs=len(ranks),
            body=self._close("scan", _infos(inner), results, ranks),
            num_scan_inputs=len(steps),
            scan_input_directions=list(directions) or [0] * len(steps),
            scan_output_directions=list(output_directions) or [0] * (len(ranks) - len(state)),
        )
        return _states_and_outputs(state, made, results)

    def _open(self, outside: Mapping[str, Value]) -> dict[str, Value]:
        """Begin the body of a loop; return its inputs, by the names of the outer values."""
        self._scopes.append(_Scope())
        return {k: Value(self, f"{k}_{next(self._numbers)}", x.dtype) for k, x in outside.items()}

    def _close(
        self,
        name: str,
        inputs: list[onnx.ValueInfoProto],
        results: list[Value],
        ranks: Sequence[int] = (),
    ) -> onnx.GraphProto:
        """End and return the body of a loop; it may not output outer values, so it copies them."""
        results = [self("Identity", x) for x in results]
        scope = self._scopes.pop()
        outputs = [
            _info(x.name, x.dtype, None if rank is None else [f"{x.name}_{i}" for i in range(rank)])
            for x, rank in itertools.zip_longest(results, ranks)
        ]
        return helper.make_graph(
            scope.nodes,
            f"{name}_{next(self._numbers)}",
            inputs,
            outputs,
            list(scope.constants.values()),
        )

    def save(
        self, path: Path, outputs: Mapping[str, Value], **shapes: Sequence[str | int]
    ) -> dict[str, Any]:
        """Write the graph to a file, next to the shared constants.

        Args:
            path: of the file.
            outputs: values by the names that the outputs get.
            **shapes: of outputs. Other shapes are inferred: a first axis that varies is called B
                (batch), other axes that vary are called S (length of a source).

        Returns:
            The dtype and shape of inputs and outputs, by name. An axis that varies is a name.
        """
        named = []
        for name, x in outputs.items():
            node = helper.make_node("Identity", [x.name], [name], name=f"output_{name}")
            self._scopes[-1].nodes.append(node)
            named.append(_info(name, x.dtype, shapes.get(name)))
        (scope,) = self._scopes
        constants = [*scope.constants.values(), *self._used.values()]
        graph = helper.make_graph(scope.nodes, path.stem, self._inputs, named, constants)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=_IR_VERSION,
            producer_name="keras-attention",
        )
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph.output
        for own, found in zip(model.graph.output, inferred, strict=True):
            if own.name not in shapes:
                own.CopyFrom(found)
                for place, axis in enumerate(own.type.tensor_type.shape.dim):
                    if not axis.dim_value:  # inference may have a name of its own for it
                        axis.dim_param = "S" if place else "B"
        path.write_bytes(model.SerializeToString())
        return {
            "inputs": dict(map(_signature, self._inputs)),
            "outputs": dict(map(_signature, model.graph.output)),
        }


def _dtype_of(value: Any) -> str:
    """Return the dtype of a constant: an array's own, else bool, float32 or int64."""
    dtype = np.asarray(value).dtype
    if isinstance(value, np.ndarray) or dtype.kind == "b":
        return str(dtype)
    return "float32" if dtype.kind == "f" else "int64"


def _info(name: str, dtype: str, shape: Any = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape
    )


def _infos(values: Mapping[str, Value]) -> list[onnx.ValueInfoProto]:
    return [_info(x.name, x.dtype) for x in values.values()]


def _states_and_outputs(
    state: Mapping[str, Value], made: Value | list[Value], results: list[Value]
) -> tuple[dict[str, Value], list[Value]]:
    """Return the last state and the outputs of a loop, with the dtypes of its body's results."""
    made = [made] if isinstance(made, Value) else made
    for x, result in zip(made, results, strict=True):
        x.dtype = result.dtype
    return dict(zip(state, made, strict=False)), made[len(state) :]


def _signature(info: onnx.ValueInfoProto) -> tuple[str, dict[str, Any]]:
    tensor = info.type.tensor_type
    shape = [axis.dim_param or axis.dim_value for axis in tensor.shape.dim]
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    return info.name, {"dtype": str(dtype), "shape": shape}
