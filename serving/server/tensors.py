"""Tensors of requests: checked before memory is spent on them, and converted from and to NumPy."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from google.protobuf.message import Message

from serving.client.serving_pb2 import TensorProto
from serving.savedmodel.status import Code, StatusError, invalid

STRING = 7
_MOST_DIMENSIONS = 254  # TensorFlow's own limit


class DType(NamedTuple):
    """A data type.

    Attributes:
        name: in TensorFlow's errors.
        numpy: its name in NumPy; strings are objects of bytes.
        field: of a TensorProto that holds its values.
    """

    name: str
    numpy: str
    field: str


DTYPES = {
    1: DType("float", "float32", "float_val"),
    2: DType("double", "float64", "double_val"),
    3: DType("int32", "int32", "int_val"),
    4: DType("uint8", "uint8", "int_val"),
    5: DType("int16", "int16", "int_val"),
    6: DType("int8", "int8", "int_val"),
    STRING: DType("string", "object", "string_val"),
    9: DType("int64", "int64", "int64_val"),
    10: DType("bool", "bool", "bool_val"),
    17: DType("uint16", "uint16", "int_val"),
    22: DType("uint32", "uint32", "uint32_val"),
    23: DType("uint64", "uint64", "uint64_val"),
}
_NUMBERS = {np.dtype(dtype.numpy): number for number, dtype in DTYPES.items()}


def name_of(number: int) -> str:
    """The name of a data type."""
    return DTYPES[number].name if number in DTYPES else f"data type {number}"


def to_proto(array: np.ndarray) -> Message:
    """TensorProto with `array` in its typed field, as the stock server answers.

    Raises StatusError UNIMPLEMENTED for a dtype that is not in `DTYPES`.
    """
    if array.dtype not in _NUMBERS:
        raise StatusError(Code.UNIMPLEMENTED, f"tensors of {array.dtype} cannot be sent")
    proto = TensorProto(dtype=_NUMBERS[array.dtype])
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    getattr(proto, DTYPES[proto.dtype].field).extend(array.ravel().tolist())
    return proto


def to_array(proto: Message) -> np.ndarray:
    """The array of a TensorProto that passed `check_inputs`, or that `to_proto` made."""
    dtype, shape = DTYPES[proto.dtype], [dim.size for dim in proto.tensor_shape.dim]
    if proto.tensor_content:
        return np.frombuffer(proto.tensor_content, dtype.numpy).reshape(shape)
    values = np.array(getattr(proto, dtype.field), "object" if proto.dtype == STRING else None)
    values = values.astype(dtype.numpy)
    missing = math.prod(shape) - len(values)  # repetitions of the last value
    return np.concatenate([values, np.repeat(values[-1:], missing)]).reshape(shape)


def check_inputs(
    inputs: Mapping[str, Message],
    infos: Mapping[str, Message],
    ranks: Mapping[str, int],
    most_rows: int,
) -> None:
    """Compare a request's tensors with the signature: dtype, rank, number of values, rows.

    A TensorProto may declare any shape and send one value, which is repeated: then each repetition
    counts as a row.

    Args:
        inputs: the tensors, by alias.
        infos: of the signature, for each of them.
        ranks: the ranks that some of them must have.
        most_rows: that a request may have.

    Raises StatusError INVALID_ARGUMENT.
    """
    for number, (alias, proto) in enumerate(inputs.items()):
        dtype = infos[alias].dtype
        if proto.dtype != dtype or dtype not in DTYPES:
            expected, received = name_of(dtype), name_of(proto.dtype)
            raise invalid(f"Expects arg[{number}] to be {expected} but {received} is provided")
        shape = [dim.size for dim in proto.tensor_shape.dim]
        unknown = proto.tensor_shape.unknown_rank or len(shape) > _MOST_DIMENSIONS
        if unknown or any(size < 0 for size in shape):
            raise invalid(f"tensor parsing error: {alias}")
        if ranks.get(alias, len(shape)) != len(shape):
            expected = ",".join("?" * ranks[alias])
            raise invalid(
                f"Shape of tensor {alias} [{','.join(map(str, shape))}] is not compatible with "
                f"expected shape [{expected}]."
            )
        rows = _check_size(alias, proto, math.prod(shape), shape[0] if shape else 1)
        if rows > most_rows:
            # The stock server's words for a batch that is too large: clients parse them.
            raise invalid(f"Task size {rows} is larger than maximum input batch size {most_rows}")


def _check_size(alias: str, proto: Message, declared: int, rows: int) -> int:
    """Check that a tensor's values fill its shape of `declared` values; return its rows."""
    dtype = DTYPES[proto.dtype]
    if proto.tensor_content:
        size = declared * np.dtype(dtype.numpy).itemsize
        good = proto.dtype != STRING and len(proto.tensor_content) == size
        repeated = False
    else:
        sent = len(getattr(proto, dtype.field))
        good = sent <= declared and bool(sent or not declared)
        repeated = sent < declared
    if not good:
        raise invalid(f"tensor parsing error: {alias}")
    return declared if repeated else rows
