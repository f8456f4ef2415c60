"""NumPy arrays to and from TensorProto, in the form that TensorFlow Serving answers with."""

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


def to_proto(array: np.ndarray) -> tensor_pb2.TensorProto:
    """TensorProto with `array` in its typed field, as the stock server answers.

    Strings are object arrays of bytes. Dtypes without a field of their own go into
    `tensor_content`.
    """
    dtype = tf.string if array.dtype == object else tf.dtypes.as_dtype(array.dtype)
    if dtype not in FIELDS:
        return tf.make_tensor_proto(array)
    proto = tensor_pb2.TensorProto(dtype=dtype.as_datatype_enum)
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    if dtype in (tf.float16, tf.bfloat16):
        array = array.ravel().view(np.uint16)
    elif dtype == tf.complex64:
        array = array.ravel().view(np.float32)
    elif dtype == tf.complex128:
        array = array.ravel().view(np.float64)
    getattr(proto, FIELDS[dtype]).extend(array.ravel().tolist())
    return proto


def to_array(proto: tensor_pb2.TensorProto) -> np.ndarray:
    """The array in a TensorProto; strings become an object array of bytes."""
    return tf.make_ndarray(proto)
