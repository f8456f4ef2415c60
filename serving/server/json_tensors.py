"""JSON of the REST interface: requests to arrays, arrays to answers."""

import base64
import json
import math
import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from google.protobuf.message import Message

from serving.savedmodel.status import Code, StatusError, invalid
from serving.server.tensors import DTYPES, STRING, Arrays, name_of

# A parsed value takes up to thirty times the memory of its text.
_MOST_VALUES = 10_000_000


def parse(body: bytes | bytearray) -> dict[str, Any]:
    """The JSON object of a request. Raises StatusError."""
    if sum(body.count(mark) for mark in b",[{") > _MOST_VALUES:
        raise invalid(f"JSON Parse error: more than {_MOST_VALUES} values")
    try:
        document = json.loads(body)
    except RecursionError:
        raise invalid("JSON Parse error: nested too deep") from None
    except ValueError as error:  # of JSON, of UTF-8, or of a number of too many digits
        raise invalid(f"JSON Parse error: {error}") from error
    if not isinstance(document, dict):
        raise invalid("expected a JSON object with 'instances' or 'inputs'")
    if not isinstance(document.get("signature_name", ""), str):
        raise invalid("'signature_name' must be a string")
    if ("instances" in document) == ("inputs" in document):
        raise invalid("expected either 'instances' or 'inputs'")
    return document


def read_inputs(document: Mapping[str, Any], infos: Mapping[str, Message]) -> Arrays:
    """The arrays of a request in rows (`instances`) or in columns (`inputs`)."""
    columns: Any = document.get("inputs")
    rows: Any = document.get("instances")
    if "instances" in document:
        if not isinstance(rows, list) or not rows:
            raise invalid("'instances' must be a list of at least one value")
        if _is_object(rows[0]):
            for number, row in enumerate(rows):
                if not _is_object(row) or row.keys() != infos.keys():
                    keys = f"an object with the keys {sorted(infos)}"
                    raise invalid(f"instance {number} must be {keys}: is {reprlib.repr(row)}")
            rows = {alias: [row[alias] for row in rows] for alias in infos}
        columns = rows
    if not _is_object(columns):
        columns = {_only(infos): columns}
    if columns.keys() != infos.keys():
        received = reprlib.repr([*columns])
        raise invalid(f"'inputs' must have the keys {sorted(infos)}: has {received}")
    return {alias: _array(alias, columns[alias], infos[alias].dtype) for alias in infos}


def _only(infos: Mapping[str, Message]) -> str:
    if len(infos) != 1:
        raise invalid(f"expected objects with the keys {sorted(infos)}")
    return next(iter(infos))


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() != {"b64"}


def _array(alias: str, value: Any, number: int) -> np.ndarray:
    """An array of nested lists. Raises StatusError."""
    if number not in DTYPES:
        raise StatusError(Code.UNIMPLEMENTED, f"input {alias} is of {name_of(number)}")
    nested = np.array(value, object)
    leaves = nested.ravel().tolist()
    if any(isinstance(leaf, list) for leaf in leaves):
        raise invalid(f"input {alias}: lists of different lengths, or nested too deep")
    dtype = np.dtype(DTYPES[number].numpy)
    if number == STRING:
        leaves = [_string(alias, leaf) for leaf in leaves]
    else:
        types: tuple[type, ...] = {"b": (bool,), "f": (int, float)}.get(dtype.kind, (int,))
        # The whole numbers that a float has exactly.
        most = 2 ** (np.finfo(dtype).nmant + 1) if dtype.kind == "f" else math.inf
        for leaf in leaves:
            if type(leaf) not in types or (type(leaf) is int and abs(leaf) > most):
                raise _wrong(alias, leaf, number)
    try:
        with np.errstate(over="raise"):
            return np.array(leaves, dtype).reshape(nested.shape)
    except (OverflowError, FloatingPointError) as error:
        raise invalid(f"input {alias}: {error}") from error


def _string(alias: str, value: Any) -> bytes:
    try:
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, dict) and isinstance(value.get("b64"), str):
            text = value["b64"]
            return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError as error:  # base64, or half of a surrogate pair
        raise invalid(f"input {alias}: {error}") from error
    raise _wrong(alias, value, STRING)


def _wrong(alias: str, value: Any, dtype: int) -> StatusError:
    expected = f"is not of expected type: {name_of(dtype)}"
    return invalid(f"input {alias}: {reprlib.repr(value)} {expected}")


def write_outputs(outputs: Arrays, rows: bool) -> str:
    """The answer to a request, in its format: rows, or columns."""
    values = {name: _values(name, outputs[name]) for name in sorted(outputs)}
    if not rows:
        return json.dumps({"outputs": _single(values)}, ensure_ascii=False)
    sizes = {len(value) if isinstance(value, list) else 0 for value in values.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise invalid("outputs without rows, or of different numbers of rows: ask with 'inputs'")
    predictions = [
        _single(dict(zip(values, row, strict=True))) for row in zip(*values.values(), strict=True)
    ]
    return json.dumps({"predictions": predictions}, ensure_ascii=False)


def _single(values: dict[str, Any]) -> Any:
    return next(iter(values.values())) if len(values) == 1 else values


def _values(name: str, array: np.ndarray) -> Any:
    """Nested lists of an output: texts, `{"b64": …}` where its name ends in `_bytes`, numbers."""
    leaves: list[Any]
    if array.dtype == np.float32:  # the shortest decimals that give it back
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
