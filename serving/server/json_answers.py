"""Answers of the REST interface: tensors, results and messages to JSON."""

import base64
import json
from collections.abc import Iterator, Mapping

import numpy as np
from google.protobuf import json_format
from google.protobuf.message import Message

from serving.client.protobuf import SignatureDefMap
from serving.savedmodel.status import invalid, shortened
from serving.server.tensors import to_array


def write_tensors(outputs: Mapping[str, Message], row_format: bool) -> str:
    """Answer of a Predict request, in the format of the request."""
    arrays = {name: to_array(outputs[name]) for name in sorted(outputs)}
    one = len(arrays) == 1
    if not row_format:
        texts = {name: _array_text(array, name) for name, array in arrays.items()}
        return f'{{\n    "outputs": {next(iter(texts.values())) if one else _object(texts)}\n}}'
    size = 0
    for name, array in arrays.items():
        if array.ndim == 0:
            raise invalid(f"Tensor name: {name} has no shape information ")
        if len(array) < 1:
            raise invalid(f"Tensor name: {name} has invalid batch size: {len(array)}")
        if size and len(array) != size:
            raise invalid(
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
    leaves = iter(_leaf_texts(array, as_bytes=name.endswith("_bytes")))

    def nested(shape: tuple[int, ...]) -> str:
        if not shape:
            return next(leaves)
        return "[" + ", ".join(nested(shape[1:]) for _ in range(shape[0])) + "]"

    return nested(array.shape)


def _leaf_texts(array: np.ndarray, as_bytes: bool) -> Iterator[str]:
    kind = array.dtype.kind
    if kind == "O":
        for value in array.flat:
            if as_bytes:
                yield _object({"b64": json.dumps(base64.b64encode(value).decode("ascii"))})
            else:
                yield json.dumps(value.decode("utf-8", "surrogateescape"), ensure_ascii=False)
    elif array.dtype in (np.float32, np.float64):
        yield from (_decimal(value) for value in array.flat)
    elif kind in "iub":
        yield from (json.dumps(value) for value in array.ravel().tolist())
    else:
        raise invalid(f"Failed to write JSON value for tensor type: {array.dtype}")


def _decimal(value: np.floating) -> str:
    """Six digits where they are exact, else as many as the type needs; always with a point."""
    if not np.isfinite(value):
        return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    text = f"{value:g}"
    if type(value)(text) != value:
        text = f"{value:.{9 if isinstance(value, np.float32) else 17}g}"
    return text if "." in text or "e" in text else text + ".0"


def write_result(result: Message) -> str:
    """Answer of a Classify request, with the (label, score) pairs of each example, or a Regress."""
    if hasattr(result, "regressions"):
        rows = [_decimal(np.float32(one.value)) for one in result.regressions]
    else:
        rows = [
            "[" + ", ".join(map(_pair, found.classes)) + "]" for found in result.classifications
        ]
    return '{\n    "results": [' + ", ".join(rows) + "]\n}"


def _pair(found: Message) -> str:
    label = json.dumps(found.label, ensure_ascii=False)
    return f"[{label}, {_decimal(np.float32(found.score))}]"


def write_message(message: Message) -> str:
    """A protocol message with its own field names."""
    return json_format.MessageToJson(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def write_metadata(response: Message) -> str:
    """Answer of a metadata request."""
    signatures = SignatureDefMap.FromString(response.metadata["signature_def"].value)
    return (
        f'{{\n"model_spec":{write_message(response.model_spec)},\n'
        f'"metadata": {{"signature_def": {write_message(signatures)}}}\n}}\n'
    )


def write_error(message: str) -> str:
    """Body of an answer that is an error."""
    return json.dumps({"error": shortened(message)}, indent=4, ensure_ascii=False)
