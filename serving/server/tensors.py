"""Data types, and conversion between TensorProtos and NumPy as the stock server does it."""

import math
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import Message

from serving.client.protobuf import TensorProto
from serving.savedmodel.status import Code, StatusError


class DType(NamedTuple):
    """A data type of tensors.

    Attributes:
        name: in TensorFlow's errors.
        numpy: its name in NumPy; strings are objects of bytes.
        field: of a TensorProto that holds its values.
        stored: the type of the field's numbers, if it differs.
        each: numbers in the field for each value.
    """

    name: str
    numpy: str
    field: str
    stored: str | None = None
    each: int = 1

    @property
    def bytes(self) -> int:
        """The size of a value; strings have none."""
        return np.dtype(self.stored or self.numpy).itemsize * self.each


STRING = 7
DTYPES = {
    1: DType("float", "float32", "float_val"),
    2: DType("double", "float64", "double_val"),
    3: DType("int32", "int32", "int_val"),
    4: DType("uint8", "uint8", "int_val"),
    5: DType("int16", "int16", "int_val"),
    6: DType("int8", "int8", "int_val"),
    STRING: DType("string", "object", "string_val"),
    8: DType("complex64", "complex64", "scomplex_val", "float32", 2),
    9: DType("int64", "int64", "int64_val"),
    10: DType("bool", "bool", "bool_val"),
    14: DType("bfloat16", "bfloat16", "half_val", "uint16"),
    17: DType("uint16", "uint16", "int_val"),
    18: DType("complex128", "complex128", "dcomplex_val", "float64", 2),
    19: DType("half", "float16", "half_val", "uint16"),
    22: DType("uint32", "uint32", "uint32_val"),
    23: DType("uint64", "uint64", "uint64_val"),
}


@cache
def number_of(dtype: np.dtype) -> int:
    """The number of a NumPy dtype. Raises StatusError UNIMPLEMENTED for an unknown one."""
    for number, known in DTYPES.items():
        if known.numpy == dtype.name:
            return number
    raise StatusError(Code.UNIMPLEMENTED, f"tensors of {dtype} cannot be sent")


def name_of(number: int) -> str:
    """The name of a data type."""
    return DTYPES[number].name if number in DTYPES else f"an unknown type ({number})"


def shape_text(shape: Iterable[int | str]) -> str:
    """A shape as errors show it, `[3,5]`."""
    return f"[{','.join(map(str, shape))}]"


def to_proto(array: np.ndarray) -> Message:
    """TensorProto with `array` in its typed field, as the stock server answers."""
    proto, dtype = _empty(array)
    values = array.ravel()
    getattr(proto, dtype.field).extend(
        (values.view(dtype.stored) if dtype.stored else values).tolist()
    )
    return proto


def packed(array: np.ndarray) -> Message:
    """TensorProto with the bytes of `array`, which is faster to write and to read."""
    proto, dtype = _empty(array)
    if dtype.field == "string_val":
        proto.string_val.extend(array.ravel().tolist())
    else:
        proto.tensor_content = array.tobytes()
    return proto


def _empty(array: np.ndarray) -> tuple[Any, DType]:
    number = number_of(array.dtype)
    proto = TensorProto(dtype=number)
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    return proto, DTYPES[number]


def to_array(proto: Message) -> np.ndarray:
    """The array of a TensorProto that passed `check_inputs`, or that `to_proto` made."""
    dtype, shape = DTYPES[proto.dtype], [dim.size for dim in proto.tensor_shape.dim]
    if proto.tensor_content:
        return np.frombuffer(proto.tensor_content, dtype.numpy).reshape(shape)
    values = np.array(getattr(proto, dtype.field), "object" if proto.dtype == STRING else None)
    values = values.astype(dtype.stored or dtype.numpy)  # higher bits are ignored
    if dtype.stored:
        values = values.view(dtype.numpy)
    missing = math.prod(shape) - len(values)  # repetitions of the last value
    return np.concatenate([values, np.repeat(values[-1:], missing)]).reshape(shape)
