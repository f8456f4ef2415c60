"""The inputs that the check runs a signature on."""

import zlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

PREDICT = "tensorflow/serving/predict"
IMAGES = "image_bytes"

_OTHER_DIMENSION = 3


def images() -> list[bytes]:
    """PNG and JPEG files, gray and in colour, of several sizes."""
    files = []
    for number, (height, width, channels) in enumerate(
        [(23, 47, 1), (61, 31, 3), (200, 5, 3), (32, 72, 1), (7, 7, 3), (60, 160, 3)]
    ):
        rng = np.random.default_rng(number)
        pixels = rng.integers(0, 256, (height, width, channels)).astype("uint8")
        encode = tf.io.encode_jpeg if number % 2 else tf.io.encode_png
        files.append(encode(pixels).numpy())
    return files


def reads_images(signature: meta_graph_pb2.SignatureDef) -> bool:
    """Whether all that a signature takes is files of images."""
    return set(signature.inputs) == {IMAGES}


def is_batched(signature: meta_graph_pb2.SignatureDef) -> bool:
    """Whether an input has an axis for the batch."""
    shapes = [info.tensor_shape for info in signature.inputs.values()]
    return any(shape.unknown_rank or shape.dim for shape in shapes)


def make_inputs(
    signature: meta_graph_pb2.SignatureDef, texts: Sequence[bytes], first: int = 0
) -> dict[str, np.ndarray]:
    """Inputs of as many rows; without texts, numbers that depend on the row alone."""
    return {alias: _values(alias, info, texts, first) for alias, info in signature.inputs.items()}


def _values(
    alias: str, info: meta_graph_pb2.TensorInfo, texts: Sequence[bytes], first: int
) -> np.ndarray:
    """A value for an input: the texts, or numbers that are each row's own, from row `first` on."""
    dims = [dim.size for dim in info.tensor_shape.dim]
    scalar = not info.tensor_shape.unknown_rank and not dims
    shape = tuple(_OTHER_DIMENSION if size < 0 else size for size in dims[1:])
    if info.dtype == tf.string.as_datatype_enum:
        column = np.array([*texts], object).reshape((-1, *[1] * len(shape)))
        return (
            np.array(texts[0], object) if scalar else np.broadcast_to(column, (len(texts), *shape))
        )
    dtype = tf.dtypes.as_dtype(info.dtype)
    rows = []
    for number in range(first, first + len(texts)):
        rng = np.random.default_rng([zlib.crc32(alias.encode()), number])
        numbers = rng.random(shape)
        # As integers, ids that any vocabulary has.
        rows.append(numbers if dtype.is_floating else (numbers < 0.5).astype("int8"))
    array = np.stack(rows) if rows else np.zeros((0, *shape))
    return (array[0] if scalar else array).astype(dtype.as_numpy_dtype)
