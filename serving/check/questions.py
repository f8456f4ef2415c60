"""The inputs that exports are checked with; TensorFlow is imported where a SavedModel is asked."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

PREDICT = "tensorflow/serving/predict"
IMAGES = "image_bytes"
TEXTS = (
    b"She is eating a green apple.",
    "Il n'aime pas les pommes : été.".encode(),
    "他不喜欢苹果。".encode(),
    *(b"a text of " + b"some more " * count + b"words" for count in range(14)),
)
HARD_TEXTS = {
    "an empty text": b"",
    "a text of 2,000 words": b" ".join([b"word"] * 2000),
    "a text that is not UTF-8": b"\xff\xfe invalid \x80 UTF-8",
    "a text with NUL": b"NUL \x00 inside",
    "a short text": b"a short text",
}
_OTHER_DIMENSION = 3


def images() -> list[bytes]:
    """Return PNG and JPEG files, gray and in colour, of several sizes."""
    import tensorflow as tf

    files = []
    for number, (height, width, channels) in enumerate(
        [(23, 47, 1), (61, 31, 3), (200, 5, 3), (32, 72, 1), (7, 7, 3), (60, 160, 3)]
    ):
        rng = np.random.default_rng(number)
        pixels = rng.integers(0, 256, (height, width, channels)).astype("uint8")
        encode = tf.io.encode_jpeg if number % 2 else tf.io.encode_png
        files.append(encode(pixels).numpy())
    return files


def predicting(session: Any) -> dict[str, Any]:
    """Return the signatures of a `ModelSession` that Predict can ask, by name."""
    return {
        name: signature
        for name, signature in sorted(session.signatures.items())
        if not name.startswith("__") and signature.method_name == PREDICT
    }


def reads_images(signature: Any) -> bool:
    """Whether a signature, a `SignatureDef`, takes files of images alone."""
    return set(signature.inputs) == {IMAGES}


def takes_texts(signature: Any) -> bool:
    """Whether a signature takes texts alone, one or several a row."""
    import tensorflow as tf

    dtypes = {info.dtype for info in signature.inputs.values()}
    return dtypes == {tf.string.as_datatype_enum} and not reads_images(signature)


def is_batched(signature: Any) -> bool:
    """Whether an input has an axis for the batch."""
    shapes = [info.tensor_shape for info in signature.inputs.values()]
    return any(shape.unknown_rank or shape.dim for shape in shapes)


def make_inputs(signature: Any, texts: Sequence[bytes], first: int = 0) -> dict[str, np.ndarray]:
    """Return inputs of a `SignatureDef`, one row a text; numbers differ in every row.

    `first` is the number of the first row.
    """
    return {alias: _values(alias, info, texts, first) for alias, info in signature.inputs.items()}


def _values(alias: str, info: Any, texts: Sequence[bytes], first: int) -> np.ndarray:
    import tensorflow as tf

    dims = [dim.size for dim in info.tensor_shape.dim]
    scalar = not info.tensor_shape.unknown_rank and not dims
    shape = tuple(_OTHER_DIMENSION if size < 0 else size for size in dims[1:])
    dtype = tf.dtypes.as_dtype(info.dtype)
    array = np.zeros((len(texts), *shape), dtype.as_numpy_dtype)
    for number, text in enumerate(texts):
        if dtype == tf.string:
            array[number, ...] = text
            continue
        rng = np.random.default_rng([zlib.crc32(alias.encode()), first + number])
        numbers = rng.random(shape)
        # As integers, ids that any vocabulary has.
        array[number] = numbers if dtype.is_floating else numbers < 0.5
    return array[0, ...] if scalar else array
