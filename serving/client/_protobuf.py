"""Reads and writes tensors in TensorFlow Serving's messages, without TensorFlow.

The outputs of a response are checked for dtype, rank and length.
"""

import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from google.protobuf.message import Message

from serving.api._errors import UnexpectedResponseError
from serving.api._results import Hypothesis
from serving.client.serving_pb2 import TensorProto

FLOAT, DOUBLE, INT32, STRING, INT64, BOOL = 1, 2, 3, 7, 9, 10
# A tensor may have this many elements, or as many as its message has bytes.
MOST_VALUES = 2**24
SIGNATURES = "type.googleapis.com/tensorflow.serving.SignatureDefMap"  # type of metadata

DTYPES = {  # name, field of a TensorProto, and code of `struct`, which is NumPy's as well
    FLOAT: ("float", "float_val", "f"),
    DOUBLE: ("double", "double_val", "d"),
    INT32: ("int32", "int_val", "i"),
    4: ("uint8", "int_val", "B"),
    5: ("int16", "int_val", "h"),
    6: ("int8", "int_val", "b"),
    STRING: ("string", "string_val", "O"),
    INT64: ("int64", "int64_val", "q"),
    BOOL: ("bool", "bool_val", "?"),
    17: ("uint16", "int_val", "H"),
    22: ("uint32", "uint32_val", "I"),
    23: ("uint64", "uint64_val", "Q"),
}
_NAMES = ", ".join(name for name, _, _ in DTYPES.values())
# DataType and rank of each output; the rank includes the batch axis.
_OUTPUTS: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("translation", "text", "unknown"), (STRING, 1)),
    **dict.fromkeys(("score", "probability"), (FLOAT, 1)),
    "truncated": (BOOL, 1),
    **dict.fromkeys(("translations", "texts", "words", "tokens"), (STRING, 2)),
    **dict.fromkeys(("source_tokens", "target_tokens"), (STRING, 2)),
    **dict.fromkeys(("scores", "log_probs"), (FLOAT, 2)),
    **dict.fromkeys(("word_probabilities", "token_probabilities"), (FLOAT, 2)),
    "attention_weights": (FLOAT, 3),  # (B, T, S), of alignments
}


def string_tensor(strings: Sequence[bytes]) -> Message:
    """Return strings as a TensorProto of shape `(len(strings),)`."""
    tensor = TensorProto(dtype=STRING, string_val=strings)
    tensor.tensor_shape.dim.add(size=len(strings))
    return tensor


def float_tensor(values: Sequence[Any]) -> Any:
    """Return nested lists of floats, of shape `(B, …)`, as a TensorProto."""
    tensor = TensorProto(dtype=FLOAT)
    flat: Any = [values]
    while flat and isinstance(flat[0], Sequence):
        tensor.tensor_shape.dim.add(size=len(flat[0]))
        flat = [value for row in flat for value in row]
    tensor.tensor_content = struct.pack(f"<{len(flat)}f", *flat)
    return tensor


def tensor_shape(tensor: Message) -> tuple[int, ...]:
    """Return the shape of a TensorProto. Raises ValueError if it is unknown."""
    shape = tuple(dim.size for dim in tensor.tensor_shape.dim)
    if tensor.tensor_shape.unknown_rank or any(size < 0 for size in shape):
        raise ValueError("expected a tensor of a known shape. Received: one without")
    return shape


def tensor_values(tensor: Message) -> Any:
    """Return the values of a TensorProto as nested lists of its shape; strings are bytes.

    Raises ValueError for a dtype that is not in `DTYPES`, for values that do not fill the shape,
    and for a shape with many more elements than the message has bytes.
    """
    if tensor.dtype not in DTYPES:
        raise ValueError(f"expected a tensor of {_NAMES}. Received: data type {tensor.dtype}")
    shape = tensor_shape(tensor)
    size = math.prod(shape)
    # max(1, …): nested empty lists take memory, too.
    if math.prod(max(1, width) for width in shape) > max(MOST_VALUES, tensor.ByteSize()):
        raise ValueError(f"expected fewer elements. Received: a tensor of shape {list(shape)}")
    name, field, code = DTYPES[tensor.dtype]
    if content := tensor.tensor_content:
        width = 0 if tensor.dtype == STRING else struct.calcsize(f"<{code}")
        if not width or len(content) % width:
            raise ValueError(f"expected {name}s. Received: {len(content)} bytes")
        values = list(struct.unpack(f"<{len(content) // width}{code}", content))
    else:
        values = list(getattr(tensor, field))
        # A TensorProto may leave out repetitions of its last value.
        values += values[-1:] * (size - len(values))
    if len(values) != size:
        raise ValueError(f"expected values of shape {list(shape)}. Received: {len(values)}")
    for axis in range(len(shape) - 1, 0, -1):
        width, count = shape[axis], math.prod(shape[:axis])
        values = [values[row * width : (row + 1) * width] for row in range(count)]
    return values if shape else values[0]


def read_rows(
    response: Message, count: int, *names: str, optional: Iterable[str] = (), weights: int = 3
) -> Iterator[dict[str, Any]]:
    """Yield, for each row of a PredictResponse, the values of its outputs by name; texts are str.

    Args:
        response: the PredictResponse.
        count: the expected number of rows.
        names: the required outputs.
        optional: outputs that a model may lack.
        weights: the rank of `attention_weights`.

    Raises UnexpectedResponseError if an output is missing, or has another dtype, rank or length.
    """
    names = (*names, *(name for name in optional if name in response.outputs))
    ranks = {name: weights if name == "attention_weights" else _OUTPUTS[name][1] for name in names}
    columns = [_values(response, count, name, rank) for name, rank in ranks.items()]
    for row in zip(*columns, strict=True):
        yield dict(zip(names, map(_decoded, row), strict=True))


def _values(response: Message, count: int, name: str, rank: int) -> list[Any]:
    if name not in response.outputs:
        raise UnexpectedResponseError(
            f"This is another kind of model: its response has "
            f"{', '.join(sorted(response.outputs))}, but not {name}. Texts: Translator. Images: "
            "Reader. Histories: Predictor"
        )
    tensor, dtype = response.outputs[name], _OUTPUTS[name][0]
    try:
        shape = tensor_shape(tensor)
        if len(shape) != rank or tensor.dtype != dtype:
            raise ValueError(
                f"expected data type {dtype} of {rank} dimensions. Received: type {tensor.dtype} "
                f"of shape {shape}"
            )
        if shape[0] != count:
            raise ValueError(f"expected {count} rows. Received: {shape[0]}")
        values: list[Any] = tensor_values(tensor)
    except ValueError as error:
        raise UnexpectedResponseError(f"the answer's output {name!r}: {error}") from error
    return values


def _decoded(value: Any) -> Any:
    """Return bytes, or a list of bytes, as text; invalid UTF-8 becomes U+FFFD."""
    if isinstance(value, list) and value and isinstance(value[0], bytes):
        return [text.decode("utf-8", "replace") for text in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def read_hypotheses(response: Message, count: int, name: str) -> list[list[Hypothesis]]:
    """Return the texts of output `name`, `(B, N)`, with their scores, for each row best first."""
    answers = []
    for row in read_rows(response, count, name, "scores", optional=("truncated", "unknown")):
        check_alike(row, name, "scores")
        read = row.get("truncated", False), row.get("unknown", "")
        answers.append(
            [Hypothesis(*each, *read) for each in zip(row[name], row["scores"], strict=True)]
        )
    return answers


def unpadded(row: dict[str, Any], tokens: str, *others: str) -> tuple[tuple[Any, ...], ...]:
    """Return the tokens of a row and their values without padding: empty tokens at the end.

    `others` names outputs with one value for each token. An output that the row lacks is returned
    as (). Raises UnexpectedResponseError if the outputs differ in length.
    """
    check_alike(row, *(name for name in (tokens, *others) if name in row))
    texts = row.get(tokens, ())
    count = max((place for place, text in enumerate(texts, 1) if text), default=0)
    return tuple(tuple(row.get(name, ())[:count]) for name in (tokens, *others))


def check_alike(row: dict[str, Any], *names: str) -> None:
    """Raise UnexpectedResponseError if the named outputs of a row differ in length."""
    if len({len(row[name]) for name in names}) > 1:
        lengths = ", ".join(f"{len(row[name])} {name}" for name in names)
        raise UnexpectedResponseError(f"one answer has {lengths}")
