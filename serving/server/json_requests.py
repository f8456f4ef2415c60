"""Requests of the REST interface: JSON to tensors and examples."""

import base64
import binascii
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from google.protobuf.message import Message

from serving.client.protobuf import TensorProto, message
from serving.savedmodel.status import Code, StatusError, invalid
from serving.server.tensors import DTYPES, STRING, name_of, shape_text

_FLOAT, _BOOL = 1, 10
# The range of integers: that of the proto's field, not of the data type.
_INTEGERS = {
    **dict.fromkeys((3, 4, 5, 6), (-(2**31), 2**31 - 1)),
    9: (-(2**63), 2**63 - 1),
    22: (0, 2**32 - 1),
    23: (0, 2**64 - 1),
}
# The largest exact whole number of floats, and the largest number.
_FLOATS = {_FLOAT: (2**24 - 1, float(np.finfo(np.float32).max)), 2: (2**53 - 1, math.inf)}
_Input = message("Input")
# A parsed value takes up to thirty times the memory of its text.
_MOST_VALUES = 10_000_000
_MOST_SHOWN = 256  # bytes of a request that an error repeats
_JSON_TYPES = {
    dict: "Object",
    list: "Array",
    str: "String",
    int: "Number",
    float: "Number",
    type(None): "Null",
}

Infos = Mapping[str, Message]
Tensors = dict[str, Message]


def parse(body: bytes | bytearray) -> dict[str, Any]:
    """The JSON object of a request. Raises StatusError."""
    if not body:
        raise invalid("JSON Parse error: The document is empty")
    if sum(body.count(mark) for mark in b",[{") > _MOST_VALUES:
        raise invalid(f"JSON Parse error: More than {_MOST_VALUES} values.")
    try:
        document = json.loads(body)
    except UnicodeDecodeError as error:
        raise invalid(
            f"JSON Parse error: Invalid encoding in string. at offset: {error.start}"
        ) from error
    except json.JSONDecodeError as error:
        raise invalid(f"JSON Parse error: {error.msg} at offset: {error.pos}") from error
    except RecursionError as error:
        raise invalid("JSON Parse error: Nested too deep.") from error
    except ValueError as error:  # a number of more digits than Python reads
        raise invalid(f"JSON Parse error: {error}") from error
    if not isinstance(document, dict):
        raise invalid(f"JSON Value: {_show(document)} Is not object")
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise invalid(
            f"JSON Value: {_show(document)} not formatted correctly. 'signature_name' key must be "
            "a string value."
        )
    return document


def _show(value: Any) -> str:
    """The start of a value as JSON. The rest is never formatted."""
    text = ""
    try:
        for part in json.JSONEncoder(indent=4).iterencode(value):
            text += part[:_MOST_SHOWN]
            if len(text) > _MOST_SHOWN:
                return text[:_MOST_SHOWN] + "...TRUNCATED"
    except RecursionError:
        return text + "...TRUNCATED"
    return text


def _type(value: Any) -> str:
    return str(value) if isinstance(value, bool) else _JSON_TYPES[type(value)]


def read_tensors(document: Mapping[str, Any], infos: Infos) -> tuple[Tensors, bool]:
    """Inputs of a Predict request, and whether it uses the row format (`instances`)."""
    row, column = "instances" in document, "inputs" in document
    if row and column:
        raise invalid(
            f"JSON Value: {_show(document)} Not formatted correctly expecting only one of "
            "'inputs' or 'instances' keys to exist "
        )
    if row:
        instances = document["instances"]
        if not isinstance(instances, list):
            raise invalid(
                f"JSON Value: {_show(document)} Excepting 'instances' to be an list/array"
            )
        if not instances:
            raise invalid(f"JSON Value: {_show(document)} No values in 'instances' array")
        return _read_rows(instances, infos), True
    if column:
        return _read_columns(document["inputs"], infos), False
    raise invalid("Missing 'inputs' or 'instances' key")


def _is_base64(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and not _is_base64(value)


def _read_columns(inputs: Any, infos: Infos) -> Tensors:
    if not _is_object(inputs):
        if len(infos) > 1:
            raise invalid(
                "inputs is a plain value/list, but expecting an object as multiple input tensors "
                "required as per tensorinfo_map"
            )
        inputs = {next(iter(infos)): inputs}
    tensors = {}
    for name, info in infos.items():
        if name not in inputs:
            raise invalid(f"Missing named input: {name} in 'inputs' object.")
        shape = _shape(inputs[name])
        tensors[name] = _tensor(info.dtype, shape, _values(inputs[name], shape, info.dtype))
    return tensors


def _read_rows(instances: list, infos: Infos) -> Tensors:
    named = _is_object(instances[0])
    if not named and len(infos) > 1:
        raise invalid(
            "instances is a plain list, but expecting list of objects as multiple input tensors "
            "required as per tensorinfo_map"
        )
    shapes: dict[str, list[int]] = {}
    values: dict[str, list] = {name: [] for name in infos}
    for number, instance in enumerate(instances):
        if named != _is_object(instance):
            raise invalid(
                f"Expecting object but got list at item {number} of input list"
                if named
                else f"Expecting value/list but got object at item {number} of input list"
            )
        items = instance if named else {next(iter(infos)): instance}
        for name, item in items.items():
            key = f" key: {name}" if named else ""
            try:
                if name not in infos:
                    raise invalid(f"JSON object: does not have named input: {name}")
                shape = _shape(item)
                values[name] += _values(item, shape, infos[name].dtype)
                if shapes.setdefault(name, shape) != shape:
                    raise invalid(
                        f"Expecting shape {shape_text(shapes[name])} but got: {shape_text(shape)}"
                    )
            except StatusError as error:
                raise invalid(
                    f"Failed to process element: {number}{key} of 'instances' list. Error: "
                    f"{error.code.name}: {error.message}"
                ) from error
        if set(items) != set(infos):
            raise invalid(
                f"Failed to process element: {number} of 'instances' list. JSON object: "
                f"{_show(instance)} must only have keys: {','.join(sorted(infos))}"
            )
    return {
        name: _tensor(infos[name].dtype, [len(instances), *shapes[name]], values[name])
        for name in infos
    }


def _shape(value: Any) -> list[int]:
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        if not value:
            break
        value = value[0]
    return shape


def _tensor(dtype: int, shape: list[int], values: list) -> Message:
    proto = TensorProto(dtype=dtype)
    for size in shape:
        proto.tensor_shape.dim.add(size=size)
    if values:
        getattr(proto, DTYPES[dtype].field).extend(values)
    return proto


def _values(value: Any, shape: list[int], dtype: int) -> list:
    """The leaves of a nested list, which must have the shape."""
    values: list = []

    def walk(item: Any, level: int) -> None:
        if not isinstance(item, list):
            if level != len(shape):
                raise invalid(
                    f"JSON Value: {_show(item)} found at incorrect level: {level + 1} in the JSON "
                    f"DOM. Expected at level: {len(shape)}"
                )
            values.append(_leaf(item, dtype))
            return
        if level >= len(shape):
            raise invalid(f"Encountered list at unexpected level: {level} expected < {len(shape)}")
        if len(item) != shape[level]:
            raise invalid(
                f"Encountered list at unexpected size: {len(item)} at level: {level} expected "
                f"size: {shape[level]}"
            )
        for child in item:
            walk(child, level + 1)

    walk(value, 0)
    return values


def _leaf(value: Any, dtype: int) -> Any:
    if dtype == STRING and isinstance(value, dict):
        return _decode_base64(value)
    if dtype == STRING and isinstance(value, str):
        return value.encode("utf-8")
    if dtype == _BOOL and isinstance(value, bool):
        return value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if dtype in _FLOATS and is_number:
        return _check_lossless(value, dtype)
    if dtype in _INTEGERS and is_number and isinstance(value, int):
        low, high = _INTEGERS[dtype]
        if low <= value <= high:
            return value
    elif dtype not in (*_FLOATS, *_INTEGERS, _BOOL, STRING):
        raise StatusError(
            Code.UNIMPLEMENTED,
            f"Conversion of JSON Value: {_show(value)} to type: {name_of(dtype)}",
        )
    raise invalid(
        f"JSON Value: {_show(value)} Type: {_type(value)} is not of expected type: {name_of(dtype)}"
    )


def _check_lossless(value: float, dtype: int) -> float:
    whole, largest = _FLOATS[dtype]
    limit = whole if isinstance(value, int) else largest
    if (isinstance(value, int) or math.isfinite(value)) and abs(value) > limit:
        raise invalid(
            f"Cannot convert JSON value: {_show(value)} to {name_of(dtype)} without loss of "
            "precision."
        )
    return value


def _decode_base64(value: dict) -> bytes:
    if not _is_base64(value):
        raise invalid(f"JSON Value: {_show(value)} not formatted correctly for base64 data")
    try:
        text = value["b64"]
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise invalid("Unable to base64 decode") from error


def read_examples(document: Mapping[str, Any]) -> Message:
    """Input of a Classify or Regress request."""
    found = _Input()
    examples = document.get("examples")
    if "examples" not in document:
        raise invalid(
            f"JSON Value: {_show(document)} When method is classify, key 'examples' is expected "
            "and was not found"
        )
    if not isinstance(examples, list):
        raise invalid(
            f"JSON Value: {_show(document)} Expecting 'examples' value to be an list/array"
        )
    if not examples:
        raise invalid(f"JSON Value: {_show(document)} 'examples' value is an empty array")
    target = found.example_list
    if "context" in document:
        target = found.example_list_with_context
        _fill_example(document["context"], target.context)
    for example in examples:
        _fill_example(example, target.examples.add())
    return found


def _fill_example(value: Any, example: Message) -> None:
    if not isinstance(value, dict):
        raise invalid(f"Example must be JSON object but got JSON {_type(value)}")
    for name, content in value.items():
        feature = example.features.feature[name]
        for item in content if isinstance(content, list) else [content]:
            _add_to_feature(item, name, feature)


def _add_to_feature(item: Any, name: str, feature: Any) -> None:
    value: int | float | bytes
    if isinstance(item, bool | int):
        kind, value = "int64", int(item)
        if not -(2**63) <= value < 2**63:
            raise invalid(f"Feature: {name} has uint64 element. Only int64 is supported.")
    elif isinstance(item, float):
        kind, value = "float", _check_lossless(item, _FLOAT)
    elif isinstance(item, str):
        kind, value = "bytes", item.encode("utf-8")
    elif _is_base64(item):
        kind, value = "bytes", _decode_base64(item)
    else:
        raise invalid(f"Feature: {name} has element with unexpected JSON type: {_type(item)}")
    known = feature.WhichOneof("kind")
    if known not in (None, f"{kind}_list"):
        raise invalid(
            f"Unexpected element type in feature: {name} expecting type: "
            f"{known.removesuffix('_list')}"
        )
    getattr(feature, f"{kind}_list").value.append(value)
