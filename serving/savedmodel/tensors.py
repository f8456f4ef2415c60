"""NumPy arrays to and from TensorProto, in the form that TensorFlow Serving answers with."""

from functools import lru_cache
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

FIELDS = {
    tf.float16: "half_val",
    tf.bfloat16: "half_val",
    tf.float32: "float_val",
    tf.float64: "double_val",
    tf.int8: "int_val",
    tf.int16: "int_val",
    tf.int32: "int_val",
    tf.uint8: "int_val",
    tf.uint16: "int_val",
    tf.uint32: "uint32_val",
    tf.int64: "int64_val",
    tf.uint64: "uint64_val",
    tf.bool: "bool_val",
    tf.string: "string_val",
    tf.complex64: "scomplex_val",
    tf.complex128: "dcomplex_val",
}
_VIEWS = {
    tf.float16: np.uint16,
    tf.bfloat16: np.uint16,
    tf.complex64: np.float32,
    tf.complex128: np.float64,
}


def to_proto(array: np.ndarray) -> tensor_pb2.TensorProto:
    """TensorProto with `array` in its typed field, as the stock server answers.

    Strings are object arrays of bytes. Dtypes without a field of their own go into
    `tensor_content`.
    """
    form = _form(array.dtype)
    if form is None:
        return tf.make_tensor_proto(array)
    number, field, view = form
    proto = tensor_pb2.TensorProto(dtype=number)
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    values = array.ravel()
    getattr(proto, field).extend((values if view is None else values.view(view)).tolist())
    return proto


@lru_cache(maxsize=64)
def _form(dtype: np.dtype) -> tuple[int, str, Any] | None:
    """Number and field of a dtype in a TensorProto, and what the field takes its values for."""
    found = tf.string if dtype.kind == "O" else tf.dtypes.as_dtype(dtype)
    if found not in FIELDS:
        return None
    return found.as_datatype_enum, FIELDS[found], _VIEWS.get(found)


def to_array(proto: tensor_pb2.TensorProto) -> np.ndarray:
    """The array in a TensorProto; strings become an object array of bytes."""
    return tf.make_ndarray(proto)
