"""Converts protos and JSON to NumPy arrays and back; checks sizes before it allocates memory."""

import base64
import json
import math
import reprlib
from collections import namedtuple
from collections.abc import Mapping
from typing import Any

import numpy as np
from google.protobuf.message import Message

from serving.api._image_files import INPUT
from serving.client._protobuf import DTYPES, STRING
from serving.client.serving_pb2 import TensorProto
from serving.loaded._status import Code, StatusError, invalid
from serving.portable.read._pixels import MOST_PIXELS

_MOST_DIMENSIONS, _MOST_ELEMENTS = 32, 2**40
_NUMBERS = {np.dtype(code): number for number, (_, _, code) in DTYPES.items()}

_LEAST_TEXT_COST, _IMAGE_COST = 32, 128
_PIXELS_OF_A_COST = 10_000  # pixels that are read in the time of a byte of text
_MOST_PIXELS_OF_A_BYTE = 85  # of JPEG: blocks of 64 pixels have at least six bits
# Maxima for one request: rows, positions (such as events) in all rows, bytes, and seconds.
Limits = namedtuple("Limits", ("rows", "positions", "bytes", "seconds"))
Arrays = dict[str, np.ndarray]
# Limits memory: a parsed JSON value takes up to thirty times the memory of its text.
_MOST_VALUES = 10_000_000
_TYPES: dict[str, tuple[type, ...]] = {"b": (bool,), "f": (int, float), "O": (str, dict)}


def _name_of(number: int) -> str:
    return DTYPES[number][0] if number in DTYPES else f"data type {number}"


def to_proto(array: np.ndarray) -> Message:
    """Return a TensorProto with `array` in its typed field, as the stock server sends it.

    Raises StatusError UNIMPLEMENTED for a dtype that is not in `DTYPES`.
    """
    if array.dtype not in _NUMBERS:
        raise StatusError(Code.UNIMPLEMENTED, f"tensors of {array.dtype} cannot be sent")
    proto = TensorProto(dtype=_NUMBERS[array.dtype])
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    getattr(proto, DTYPES[proto.dtype][1]).extend(array.ravel().tolist())
    return proto


def read_tensors(
    protos: Mapping[str, Message], infos: Mapping[str, Message], limits: Limits
) -> Arrays:
    """Return the arrays of a request by alias, each of the shape that its proto declares.

    A TensorProto may leave out repetitions of its last value. If it does, its number of elements
    must not exceed `limits.rows`, nor the bytes of the repeated string `limits.bytes`.

    Args:
        protos: the TensorProtos of the request.
        infos: the TensorInfos of the signature's inputs.
        limits: of the request.

    Raises StatusError INVALID_ARGUMENT.
    """
    if {*protos} != {*infos}:
        raise invalid(f"expected the inputs {sorted(infos)}. Received: {sorted(protos)}")
    arrays = {}
    for number, alias in enumerate(infos):
        proto, dtype = protos[alias], infos[alias].dtype
        if proto.dtype != dtype or dtype not in DTYPES:
            expected, received = _name_of(dtype), _name_of(proto.dtype)
            raise invalid(f"Expects arg[{number}] to be {expected} but {received} is provided")
        arrays[alias] = _to_array(alias, proto, limits)
    return arrays


def check_shapes(arrays: Arrays, infos: Mapping[str, Message], limits: Limits) -> None:
    """Check the ranks against the signature, rows and positions against the limits.

    The positions of a row are the product of those of its axes whose size the signature leaves
    open: T of `(B, T)`. Raises StatusError.
    """
    for alias, array in arrays.items():
        expected, rank = infos[alias].tensor_shape, len(infos[alias].tensor_shape.dim)
        if not expected.unknown_rank and array.ndim != rank:
            raise invalid(  # TensorFlow's words
                f"Shape of tensor {alias} [{','.join(map(str, array.shape))}] is not compatible "
                f"with expected shape [{','.join('?' * rank)}]."
            )
        known = [dim.size >= 0 for dim in expected.dim] or [False] * array.ndim
        positions = math.prod(np.extract(np.invert(known), array.shape)[1:].tolist())
        if positions > limits.positions:
            raise invalid(
                f"A row has {positions} positions, such as events; the limit is "
                f"{limits.positions}. Send less, or raise --max_request_positions"
            )
        most = limits.positions // positions if positions > 1 else limits.rows
        check_rows(len(array) if array.ndim else 1, min(limits.rows, most))


def cost(arrays: Arrays) -> float:
    """Return the estimated work: bytes of texts, number of values, pixels of images.

    The estimate orders requests that have not run; for their runs, clients are charged the time.
    """
    total = 0.0
    for alias, array in arrays.items():
        if array.dtype != object:
            total += array.size
        elif alias == INPUT:
            total += sum(map(_image_cost, array.flat))
        else:
            total += sum(max(_LEAST_TEXT_COST, len(text)) for text in array.flat)
    return total


def _image_cost(file: bytes) -> float:
    """Return the cost of the model, and of reading as many pixels as a file can have."""
    if file.startswith(b"\x89PNG") and len(file) >= 24:
        pixels = int.from_bytes(file[16:20], "big") * int.from_bytes(file[20:24], "big")
    else:
        pixels = _MOST_PIXELS_OF_A_BYTE * len(file)
    return _IMAGE_COST + min(pixels, MOST_PIXELS) / _PIXELS_OF_A_COST


def check_rows(rows: int, most: int) -> None:
    """Raise StatusError if a request has more than `most` rows."""
    if rows > most:
        # The stock server's message for a batch that is too large. Clients parse it.
        raise invalid(f"Task size {rows} is larger than maximum input batch size {most}")


def _to_array(alias: str, proto: Message, limits: Limits) -> np.ndarray:
    """Return the array of a TensorProto. The last value fills the shape. Raises StatusError."""
    malformed = invalid(f"tensor parsing error: {alias}")
    shape = [dim.size for dim in proto.tensor_shape.dim]
    unknown = proto.tensor_shape.unknown_rank or len(shape) > _MOST_DIMENSIONS
    # NumPy has no array [0, 2**62], although it would be empty.
    if unknown or min(shape, default=0) < 0 or math.prod(filter(None, shape)) > _MOST_ELEMENTS:
        raise malformed
    dtype, size = np.dtype(DTYPES[proto.dtype][2]), math.prod(shape)
    if proto.tensor_content:
        if proto.dtype == STRING or len(proto.tensor_content) != size * dtype.itemsize:
            raise malformed
        return np.frombuffer(proto.tensor_content, dtype).reshape(shape)
    sent = getattr(proto, DTYPES[proto.dtype][1])
    if len(sent) > size or (size and not sent):
        raise malformed
    if len(sent) < size:
        check_rows(size, limits.rows)
        if proto.dtype == STRING and len(sent[-1]) * size > limits.bytes:
            raise invalid(f"a repeated value of {len(sent[-1]) * size} bytes is too large")
    values = np.array(sent, object if proto.dtype == STRING else None).astype(dtype)
    return np.concatenate([values, np.repeat(values[-1:], size - len(sent))]).reshape(shape)


def parse(body: bytes | bytearray) -> dict[str, Any]:
    """Return the JSON object in the body of a request. Raises StatusError."""
    if sum(body.count(mark) for mark in b",[{") > _MOST_VALUES:
        raise invalid(f"JSON Parse error: more than {_MOST_VALUES} values")
    try:
        document = json.loads(body)
    except RecursionError:
        raise invalid("JSON Parse error: nested too deep") from None
    except ValueError as error:  # invalid JSON or UTF-8, or a number with too many digits
        raise invalid(f"JSON Parse error: {error}") from error
    if not isinstance(document, dict):
        raise invalid("expected a JSON object with 'instances' or 'inputs'")
    if not isinstance(document.get("signature_name", ""), str):
        raise invalid("'signature_name' must be a string")
    if ("instances" in document) == ("inputs" in document):
        raise invalid("expected either 'instances' or 'inputs'")
    return document


def read_inputs(document: Mapping[str, Any], infos: Mapping[str, Message]) -> Arrays:
    """Return the arrays of a request in rows (`instances`) or columns (`inputs`), by alias."""
    columns: Any = document.get("inputs")
    if "instances" in document:
        columns = rows = document["instances"]
        if not isinstance(rows, list) or not rows:
            raise invalid("'instances' must be a list of at least one value")
        if _is_object(rows[0]):
            for number, row in enumerate(rows):
                if not _is_object(row) or row.keys() != infos.keys():
                    keys = f"an object with the keys {sorted(infos)}"
                    raise invalid(f"instance {number} must be {keys}: is {reprlib.repr(row)}")
            columns = {alias: [row[alias] for row in rows] for alias in infos}
    if not _is_object(columns):
        if len(infos) != 1:
            raise invalid(f"expected objects with the keys {sorted(infos)}")
        columns = dict.fromkeys(infos, columns)
    if columns.keys() != infos.keys():
        received = reprlib.repr([*columns])
        raise invalid(f"'inputs' must have the keys {sorted(infos)}: has {received}")
    return {alias: _array(alias, columns[alias], infos[alias].dtype) for alias in infos}


def _is_object(value: Any) -> bool:
    """Return whether a JSON value is an object with columns, not `{"b64": …}`."""
    return isinstance(value, dict) and value.keys() != {"b64"}


def _array(alias: str, value: Any, number: int) -> np.ndarray:
    """Return nested lists as an array of DataType `number`. Raises StatusError."""
    if number not in DTYPES:
        raise StatusError(Code.UNIMPLEMENTED, f"input {alias} is of {_name_of(number)}")
    nested, dtype = np.array(value, object), np.dtype(DTYPES[number][2])
    leaves = nested.ravel().tolist()
    if any(isinstance(leaf, list) for leaf in leaves):
        raise invalid(f"input {alias}: lists of different lengths, or nested too deep")
    # The largest whole number up to which a float represents every one exactly.
    most = 2 ** (np.finfo(dtype).nmant + 1) if dtype.kind == "f" else math.inf
    for leaf in leaves:
        good = type(leaf) in _TYPES.get(dtype.kind, (int,))
        if not good or (type(leaf) is int and abs(leaf) > most):
            expected = f"is not of expected type: {_name_of(number)}"
            raise invalid(f"input {alias}: {reprlib.repr(leaf)} {expected}")
    try:
        with np.errstate(over="raise"):
            values = map(_bytes, leaves) if dtype.kind == "O" else leaves
            return np.array([*values], dtype).reshape(nested.shape)
    except (ValueError, OverflowError, FloatingPointError) as error:
        raise invalid(f"input {alias}: {error}") from error


def _bytes(leaf: Any) -> bytes:
    """Return the UTF-8 of a text, or the bytes of `{"b64": …}`. Raises ValueError."""
    if isinstance(leaf, str):
        return leaf.encode()
    text = leaf.get("b64")
    if not isinstance(text, str):
        raise ValueError('expected a text or {"b64": text}')
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


def write_outputs(outputs: Arrays, rows: bool) -> str:
    """Return the JSON of a response: with `rows` as `predictions`, else as `outputs`."""
    values = {name: _values(name, outputs[name]) for name in sorted(outputs)}
    if not rows:
        return json.dumps({"outputs": _single(values)}, ensure_ascii=False)
    sizes = {len(value) if isinstance(value, list) else 0 for value in values.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise invalid("outputs without rows, or of different numbers of rows: ask with 'inputs'")
    each = (dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True))
    return json.dumps({"predictions": [*map(_single, each)]}, ensure_ascii=False)


def _single(values: dict[str, Any]) -> Any:
    """Return the only value without its name, or several by name."""
    return next(iter(values.values())) if len(values) == 1 else values


def _values(name: str, array: np.ndarray) -> Any:
    """Return an output as nested lists: texts, numbers, or `{"b64": …}` for `*_bytes`."""
    leaves: list[Any]
    if array.dtype == np.float32:  # the shortest decimals that parse to the same float32
        leaves = [float(str(value)) for value in array.ravel()]
    elif array.dtype != object:
        return array.tolist()
    elif name.endswith("_bytes"):
        leaves = [{"b64": base64.b64encode(value).decode()} for value in array.flat]
    else:
        leaves = [value.decode("utf-8", "replace") for value in array.flat]
    nested = np.empty(array.size, object)
    nested[:] = leaves
    return nested.reshape(array.shape).tolist()
