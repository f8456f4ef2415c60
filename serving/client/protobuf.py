"""Tensors in TensorFlow Serving's messages, without TensorFlow, which the official stubs import.

`serving_pb2.py` is generated from serving.proto by `make messages`.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.message import Message

from serving.client.serving_pb2 import TensorProto

FLOAT, DOUBLE, INT32, STRING, INT64, BOOL = 1, 2, 3, 7, 9, 10
# Elements that an answer may have beyond those that are sent one by one.
MOST_VALUES = 2**24
SIGNATURES = "type.googleapis.com/tensorflow.serving.SignatureDefMap"  # type of metadata

DTYPES = {  # name, field of a TensorProto, and code of `struct`
    FLOAT: ("float", "float_val", "f"),
    DOUBLE: ("double", "double_val", "d"),
    INT32: ("int32", "int_val", "i"),
    STRING: ("string", "string_val", ""),
    INT64: ("int64", "int64_val", "q"),
    BOOL: ("bool", "bool_val", "?"),
}


def string_tensor(strings: Sequence[bytes]) -> Message:
    """TensorProto of shape (len(strings),)."""
    tensor = TensorProto(dtype=STRING, string_val=strings)
    tensor.tensor_shape.dim.add(size=len(strings))
    return tensor


def float_tensor(values: Sequence[Any]) -> Any:
    """TensorProto of floats in lists nested like its shape, `(B, …)`."""
    tensor = TensorProto(dtype=FLOAT)
    flat: Any = [values]
    while flat and isinstance(flat[0], Sequence):
        tensor.tensor_shape.dim.add(size=len(flat[0]))
        flat = [value for row in flat for value in row]
    tensor.tensor_content = struct.pack(f"<{len(flat)}f", *flat)
    return tensor


def input_tensors(inputs: Mapping[str, Sequence[Any]]) -> dict[str, Message]:
    """TensorProtos of a request's inputs: bytes, or floats in nested lists."""
    return {
        name: string_tensor(values) if isinstance(values[0], bytes) else float_tensor(values)
        for name, values in inputs.items()
    }


def tensor_shape(tensor: Message) -> tuple[int, ...]:
    """The shape of a TensorProto. Raises ValueError where it is not known."""
    shape = tuple(dim.size for dim in tensor.tensor_shape.dim)
    if tensor.tensor_shape.unknown_rank or any(size < 0 for size in shape):
        raise ValueError("expected a tensor of a known shape. Received: one without")
    return shape


def tensor_values(tensor: Message) -> Any:
    """The values of a TensorProto as lists nested like its shape; strings are bytes.

    Raises ValueError for a dtype that no signature here returns, values that do not fill the
    shape, and a shape that has many more elements than were sent.
    """
    if tensor.dtype not in DTYPES:
        raise ValueError(
            "expected a tensor of data type 1, 2, 3, 7, 9 or 10 (float, double, int32, string, "
            f"int64, bool). Received: {tensor.dtype}"
        )
    shape = tensor_shape(tensor)
    size = math.prod(shape)
    # Lists of lists of nothing take memory, too.
    if math.prod(max(1, width) for width in shape) > max(MOST_VALUES, tensor.ByteSize()):
        raise ValueError(f"expected fewer elements. Received: a tensor of shape {list(shape)}")
    _, field, code = DTYPES[tensor.dtype]
    if not tensor.tensor_content:
        values = list(getattr(tensor, field))
        # A TensorProto may leave out repetitions of its last value.
        values += values[-1:] * (size - len(values))
    else:
        values = _content_numbers(tensor.tensor_content, code)
    if len(values) != size:
        raise ValueError(f"expected values of shape {list(shape)}. Received: {len(values)}")
    for axis in range(len(shape) - 1, 0, -1):
        width, count = shape[axis], math.prod(shape[:axis])
        values = [values[row * width : (row + 1) * width] for row in range(count)]
    return values if shape else values[0]


def _content_numbers(content: bytes, code: str) -> list[Any]:
    width = struct.calcsize(f"<{code}") if code else 0
    if not width:
        raise ValueError("expected strings in the field string_val. Received: other bytes")
    if len(content) % width:
        raise ValueError(f"expected values of {width} bytes each. Received: {len(content)} bytes")
    return list(struct.unpack(f"<{len(content) // width}{code}", content))
