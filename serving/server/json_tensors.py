"""JSON of the REST interface: requests to tensors, tensors to answers."""

import base64
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from google.protobuf.message import Message

from serving.savedmodel.status import Code, StatusError, invalid
from serving.server.tensors import DTYPES, STRING, name_of, to_array, to_proto

# A parsed value takes up to thirty times the memory of its text.
_MOST_VALUES = 10_000_000
_MOST_SHOWN = 100  # characters of a value that an error repeats

Tensors = dict[str, Message]


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
    return document


def read_tensors(document: Mapping[str, Any], infos: Mapping[str, Message]) -> tuple[Tensors, bool]:
    """Inputs of a Predict request, and whether it has the row format (`instances`)."""
    rows = "instances" in document
    if rows == ("inputs" in document):
        raise invalid("expected either 'instances' or 'inputs'")
    if not rows:
        columns = document["inputs"]
        if not _is_object(columns):
            columns = {_only(infos): columns}
        if columns.keys() != infos.keys():
            raise invalid(f"'inputs' must have the keys {sorted(infos)}: has {_show([*columns])}")
    else:
        instances = document["instances"]
        if not isinstance(instances, list) or not instances:
            raise invalid("'instances' must be a list of at least one value")
        if not _is_object(instances[0]):
            alias = _only(infos)
            instances = [{alias: instance} for instance in instances]
        for number, instance in enumerate(instances):
            if not _is_object(instance) or instance.keys() != infos.keys():
                raise invalid(
                    f"instance {number} must be an object with the keys {sorted(infos)}: "
                    f"is {_show(instance)}"
                )
        columns = {alias: [instance[alias] for instance in instances] for alias in infos}
    return {alias: _tensor(alias, columns[alias], infos[alias].dtype) for alias in infos}, rows


def _only(infos: Mapping[str, Message]) -> str:
    if len(infos) != 1:
        raise invalid(f"expected objects with the keys {sorted(infos)}")
    return next(iter(infos))


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() != {"b64"}


def _tensor(alias: str, value: Any, dtype: int) -> Message:
    """A TensorProto of nested lists. Raises StatusError."""
    if dtype not in DTYPES:
        raise StatusError(Code.UNIMPLEMENTED, f"input {alias} is of {name_of(dtype)}")
    array = np.array(value, object)
    leaves = array.ravel().tolist()
    if any(isinstance(leaf, list) for leaf in leaves):
        raise invalid(f"input {alias}: lists of different lengths, or nested too deep")
    return to_proto(_typed(alias, leaves, dtype).reshape(array.shape))


def _typed(alias: str, leaves: list[Any], number: int) -> np.ndarray:
    dtype = np.dtype(DTYPES[number].numpy)
    if number == STRING:
        strings = np.empty(len(leaves), object)
        strings[:] = [_string(alias, leaf) for leaf in leaves]
        return strings
    types: tuple[type, ...] = {"b": (bool,), "f": (int, float)}.get(dtype.kind, (int,))
    # The whole numbers that a float has exactly.
    most = 2 ** (np.finfo(dtype).nmant + 1) if dtype.kind == "f" else math.inf
    for leaf in leaves:
        if type(leaf) not in types or (type(leaf) is int and abs(leaf) > most):
            raise _wrong(alias, leaf, number)
    try:
        with np.errstate(over="raise"):
            return np.array(leaves, dtype)
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
    return invalid(f"input {alias}: {_show(value)} is not of expected type: {name_of(dtype)}")


def _show(value: Any) -> str:
    """The start of a value as JSON. The rest is never formatted."""
    text = ""
    try:
        for part in json.JSONEncoder().iterencode(value):
            text += part[:_MOST_SHOWN]
            if len(text) > _MOST_SHOWN:
                break
    except RecursionError:
        text += "..."
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "..."


def write_tensors(outputs: Mapping[str, Message], rows: bool) -> str:
    """Answer of a Predict request, in the format of the request."""
    values = {name: _values(name, to_array(outputs[name])) for name in sorted(outputs)}
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
