"""Tensors of requests: checked before memory is spent on them, and converted from and to NumPy."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from google.protobuf.message import Message

from serving.client.serving_pb2 import TensorProto
from serving.savedmodel.status import Code, StatusError, invalid

STRING = 7
_MOST_DIMENSIONS = 32

Arrays = dict[str, np.ndarray]


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


def read_tensors(
    protos: Mapping[str, Message], infos: Mapping[str, Message], most_rows: int
) -> Arrays:
    """The arrays of a request, by alias.

    A TensorProto may declare any shape and send one value, which is repeated.

    Args:
        protos: the tensors, by alias.
        infos: of the signature, for each of them.
        most_rows: that a request may have; each value of a tensor with repetitions counts as one.

    Raises StatusError INVALID_ARGUMENT.
    """
    if {*protos} != {*infos}:
        raise invalid(f"expected the inputs {sorted(infos)}. Received: {sorted(protos)}")
    arrays = {}
    for number, alias in enumerate(infos):
        proto, dtype = protos[alias], infos[alias].dtype
        if proto.dtype != dtype or dtype not in DTYPES:
            expected, received = name_of(dtype), name_of(proto.dtype)
            raise invalid(f"Expects arg[{number}] to be {expected} but {received} is provided")
        shape = [dim.size for dim in proto.tensor_shape.dim]
        unknown = proto.tensor_shape.unknown_rank or len(shape) > _MOST_DIMENSIONS
        if unknown or any(size < 0 for size in shape):
            raise invalid(f"tensor parsing error: {alias}")
        arrays[alias] = _to_array(alias, proto, shape, most_rows)
    return arrays


def check_shapes(arrays: Arrays, infos: Mapping[str, Message], most_rows: int) -> None:
    """Compare ranks with a signature, and rows with their bound. Raises StatusError."""
    for alias, array in arrays.items():
        expected, rank = infos[alias].tensor_shape, len(infos[alias].tensor_shape.dim)
        if not expected.unknown_rank and array.ndim != rank:
            raise invalid(  # TensorFlow's words
                f"Shape of tensor {alias} [{','.join(map(str, array.shape))}] is not compatible "
                f"with expected shape [{','.join('?' * rank)}]."
            )
        _check_rows(len(array) if rank else 1, most_rows)


def _check_rows(rows: int, most: int) -> None:
    if rows > most:
        # The stock server's words for a batch that is too large: clients parse them.
        raise invalid(f"Task size {rows} is larger than maximum input batch size {most}")


def _to_array(alias: str, proto: Message, shape: list[int], most_rows: int) -> np.ndarray:
    """The array of a TensorProto, whose last value fills the shape."""
    dtype, size = DTYPES[proto.dtype], math.prod(shape)
    if proto.tensor_content:
        bytes_each = np.dtype(dtype.numpy).itemsize
        if proto.dtype == STRING or len(proto.tensor_content) != size * bytes_each:
            raise invalid(f"tensor parsing error: {alias}")
        return np.frombuffer(proto.tensor_content, dtype.numpy).reshape(shape)
    sent = getattr(proto, dtype.field)
    if len(sent) > size or (size and not sent):
        raise invalid(f"tensor parsing error: {alias}")
    if len(sent) < size:
        _check_rows(size, most_rows)
    values = np.array(sent, "object" if proto.dtype == STRING else None).astype(dtype.numpy)
    return np.concatenate([values, np.repeat(values[-1:], size - len(sent))]).reshape(shape)
