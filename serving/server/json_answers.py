"""Answers of the REST interface: tensors, results and messages to JSON."""

import base64
import json
from collections.abc import Iterator, Mapping

import numpy as np
import tensorflow as tf
from google.protobuf import json_format
from google.protobuf.message import Message
from tensorflow.core.framework import tensor_pb2
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    regression_pb2,
)

from serving.savedmodel.status import Code, StatusError

_MOST_ERROR = 1024  # characters, as over gRPC


def _invalid(message: str) -> StatusError:
    return StatusError(Code.INVALID_ARGUMENT, message)


def write_tensors(outputs: Mapping[str, tensor_pb2.TensorProto], row_format: bool) -> str:
    """Answer of a Predict request, in the format of the request."""
    arrays = {name: tf.make_ndarray(outputs[name]) for name in sorted(outputs)}
    one = len(arrays) == 1
    if not row_format:
        texts = {name: _array_text(array, name) for name, array in arrays.items()}
        return f'{{\n    "outputs": {next(iter(texts.values())) if one else _object(texts)}\n}}'
    size = 0
    for name, array in arrays.items():
        if array.ndim == 0:
            raise _invalid(f"Tensor name: {name} has no shape information ")
        if len(array) < 1:
            raise _invalid(f"Tensor name: {name} has invalid batch size: {len(array)}")
        if size and len(array) != size:
            raise _invalid(
                f"Tensor name: {name} has inconsistent batch size: {len(array)} expecting: {size}"
            )
        size = len(array)
    rows = []
    for row in range(size):
        texts = {
            name: _array_text(array[row : row + 1], name)[1:-1] for name, array in arrays.items()
        }
        rows.append(next(iter(texts.values())) if one else _object(texts))
    return '{\n    "predictions": [' + ", ".join(rows) + "]\n}"


def _object(texts: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{json.dumps(name)}: {text}" for name, text in texts.items()) + "}"


def _array_text(array: np.ndarray, name: str) -> str:
    kind = tf.string if array.dtype == object else tf.dtypes.as_dtype(array.dtype)
    leaves = iter(_leaf_texts(array, kind, as_bytes=name.endswith("_bytes")))

    def nested(shape: tuple[int, ...]) -> str:
        if not shape:
            return next(leaves)
        return "[" + ", ".join(nested(shape[1:]) for _ in range(shape[0])) + "]"

    return nested(array.shape)


def _leaf_texts(array: np.ndarray, kind: tf.DType, as_bytes: bool) -> Iterator[str]:
    if kind == tf.string:
        for value in array.flat:
            if as_bytes:
                yield _object({"b64": json.dumps(base64.b64encode(value).decode("ascii"))})
            else:
                yield json.dumps(value.decode("utf-8", "surrogateescape"), ensure_ascii=False)
    elif kind in (tf.float32, tf.float64):
        yield from (_decimal(value) for value in array.flat)
    elif kind.is_integer or kind == tf.bool:
        yield from (json.dumps(value) for value in array.ravel().tolist())
    else:
        raise _invalid(f"Failed to write JSON value for tensor type: {kind.name}")


def _decimal(value: np.floating) -> str:
    """Six digits where they are exact, else as many as the type needs; always with a point."""
    if not np.isfinite(value):
        return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    text = f"{value:g}"
    if type(value)(text) != value:
        text = f"{value:.{9 if isinstance(value, np.float32) else 17}g}"
    return text if "." in text or "e" in text else text + ".0"


def write_classifications(result: classification_pb2.ClassificationResult) -> str:
    """Answer of a Classify request: for each example its (label, score) pairs."""
    rows = []
    for found in result.classifications:
        pairs = (
            f"[{json.dumps(one.label, ensure_ascii=False)}, {_decimal(np.float32(one.score))}]"
            for one in found.classes
        )
        rows.append("[" + ", ".join(pairs) + "]")
    return '{\n    "results": [' + ", ".join(rows) + "]\n}"


def write_regressions(result: regression_pb2.RegressionResult) -> str:
    """Answer of a Regress request: a number for each example."""
    values = (_decimal(np.float32(one.value)) for one in result.regressions)
    return '{\n    "results": [' + ", ".join(values) + "]\n}"


def write_message(message: Message) -> str:
    """A protocol message with its own field names."""
    return json_format.MessageToJson(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def write_metadata(response: get_model_metadata_pb2.GetModelMetadataResponse) -> str:
    """Answer of a metadata request."""
    signatures = get_model_metadata_pb2.SignatureDefMap()
    response.metadata["signature_def"].Unpack(signatures)
    return (
        f'{{\n"model_spec":{write_message(response.model_spec)},\n'
        f'"metadata": {{"signature_def": {write_message(signatures)}}}\n}}\n'
    )


def write_error(message: str) -> str:
    """Body of an answer that is an error."""
    if len(message) > _MOST_ERROR:
        message = message[:_MOST_ERROR] + "...TRUNCATED"
    return json.dumps({"error": message}, indent=4, ensure_ascii=False)
