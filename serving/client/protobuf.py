"""TensorFlow Serving's messages from protobuf alone, without TensorFlow.

The official stubs import all of TensorFlow. Here `serving.proto` is read into a descriptor pool of
its own: the default pool refuses a second `tensorflow.TensorProto`, and both may live in one
process.
"""

import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    wrappers_pb2,
)
from google.protobuf.message import Message

FLOAT, DOUBLE, INT32, STRING, INT64, BOOL = 1, 2, 3, 7, 9, 10
# Elements that an answer may have beyond those that are sent one by one.
MOST_VALUES = 2**24

_PROTO = Path(__file__).with_name("serving.proto")
_WELL_KNOWN = (any_pb2.DESCRIPTOR, wrappers_pb2.DESCRIPTOR)
_FIELD = re.compile(
    r"(?P<repeated>repeated )?(map<string, (?P<value>[\w.]+)>|(?P<type>[\w.]+)) (?P<name>\w+) = "
    r"(?P<number>\d+)"
)
_Field = descriptor_pb2.FieldDescriptorProto


def _statements(text: str) -> Iterator[tuple[str, str]]:
    """The statements of a .proto file, each with the character that ends it."""
    text = re.sub(r"//.*", "", text)
    for words, end in re.findall(r"([^;{}]*)([;{}])", text):
        yield " ".join(words.split()), end


def _read_message(proto: Any, statements: Iterator[tuple[str, str]]) -> None:
    """Fill a DescriptorProto with what stands between its braces."""
    oneof = None
    for words, end in statements:
        kind, _, name = words.partition(" ")
        if end == "}":
            if oneof is None:
                return
            oneof = None
        elif kind == "message":
            _read_message(proto.nested_type.add(name=name), statements)
        elif kind == "enum":
            _read_enum(proto.enum_type.add(name=name), statements)
        elif kind == "oneof":
            oneof = len(proto.oneof_decl)
            proto.oneof_decl.add(name=name)
        elif found := _FIELD.fullmatch(words):
            field = _add_field(proto, found)
            if oneof is not None:
                field.oneof_index = oneof


def _read_enum(proto: Any, statements: Iterator[tuple[str, str]]) -> None:
    for words, end in statements:
        if end == "}":
            return
        name, _, number = words.partition(" = ")
        proto.value.add(name=name, number=int(number))


def _add_field(proto: Any, found: re.Match[str]) -> Any:
    field = proto.field.add(name=found["name"], number=int(found["number"]))
    is_map = found["value"] is not None
    field.label = _Field.LABEL_REPEATED if found["repeated"] or is_map else _Field.LABEL_OPTIONAL
    if is_map:
        entry = proto.nested_type.add(name=found["name"].title().replace("_", "") + "Entry")
        entry.options.map_entry = True
        for text in ("string key = 1", f"{found['value']} value = 2"):
            _add_field(entry, _FIELD.fullmatch(text))  # type: ignore[arg-type]
        field.type_name = entry.name
    elif found["type"].islower() and "." not in found["type"]:
        field.type = getattr(_Field, f"TYPE_{found['type'].upper()}")
    else:
        field.type_name = found["type"]
    return field


def _build() -> descriptor_pool.DescriptorPool:
    """A pool of the file's messages; a file of its own for each package."""
    pool = descriptor_pool.DescriptorPool()
    for known in _WELL_KNOWN:
        pool.AddSerializedFile(known.serialized_pb)
    names = [known.name for known in _WELL_KNOWN]
    statements = _statements(_PROTO.read_text(encoding="utf-8"))
    files: list[Any] = []
    for words, _ in statements:
        kind, _, name = words.partition(" ")
        if kind == "package":
            dependency = [*names, *(file.name for file in files)]
            files.append(
                descriptor_pb2.FileDescriptorProto(
                    name=f"{name}.proto", package=name, syntax="proto3", dependency=dependency
                )
            )
        elif kind == "message":
            _read_message(files[-1].message_type.add(name=name), statements)
        elif kind == "enum":
            _read_enum(files[-1].enum_type.add(name=name), statements)
    for file in files:
        pool.Add(file)
    return pool


_pool = _build()


def message(name: str, package: str = "tensorflow.serving") -> Any:
    """The class of a message of `serving.proto`."""
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{package}.{name}"))


TensorProto = message("TensorProto", "tensorflow")
ModelSpec = message("ModelSpec")
PredictRequest = message("PredictRequest")
PredictResponse = message("PredictResponse")
GetModelMetadataRequest = message("GetModelMetadataRequest")
GetModelMetadataResponse = message("GetModelMetadataResponse")
SignatureDefMap = message("SignatureDefMap")
GetModelStatusRequest = message("GetModelStatusRequest")
GetModelStatusResponse = message("GetModelStatusResponse")

DTYPES = {  # name, field of a TensorProto, and code of `struct`
    FLOAT: ("float", "float_val", "f"),
    DOUBLE: ("double", "double_val", "d"),
    INT32: ("int32", "int_val", "i"),
    STRING: ("string", "string_val", ""),
    INT64: ("int64", "int64_val", "q"),
    BOOL: ("bool", "bool_val", "?"),
}


def string_tensor(strings: Sequence[bytes]) -> Message:
    """TensorProto of shape (len(strings),)."""
    tensor = TensorProto(dtype=STRING, string_val=strings)
    tensor.tensor_shape.dim.add(size=len(strings))
    return tensor


def float_tensor(values: Sequence[Any]) -> Any:
    """TensorProto of floats in lists nested like its shape, `(B, …)`."""
    tensor = TensorProto(dtype=FLOAT)
    flat: Any = [values]
    while flat and isinstance(flat[0], Sequence):
        tensor.tensor_shape.dim.add(size=len(flat[0]))
        flat = [value for row in flat for value in row]
    tensor.tensor_content = struct.pack(f"<{len(flat)}f", *flat)
    return tensor


def input_tensors(inputs: Mapping[str, Sequence[Any]]) -> dict[str, Message]:
    """TensorProtos of a request's inputs: bytes, or floats in nested lists."""
    return {
        name: string_tensor(values) if isinstance(values[0], bytes) else float_tensor(values)
        for name, values in inputs.items()
    }


def tensor_shape(tensor: Message) -> tuple[int, ...]:
    """The shape of a TensorProto. Raises ValueError where it is not known."""
    shape = tuple(dim.size for dim in tensor.tensor_shape.dim)
    if tensor.tensor_shape.unknown_rank or any(size < 0 for size in shape):
        raise ValueError("expected a tensor of a known shape. Received: one without")
    return shape


def tensor_values(tensor: Message) -> Any:
    """The values of a TensorProto as lists nested like its shape; strings are bytes.

    Raises ValueError for a dtype that no signature here returns, values that do not fill the
    shape, and a shape that has many more elements than were sent.
    """
    if tensor.dtype not in DTYPES:
        raise ValueError(
            "expected a tensor of data type 1, 2, 3, 7, 9 or 10 (float, double, int32, string, "
            f"int64, bool). Received: {tensor.dtype}"
        )
    shape = tensor_shape(tensor)
    size = math.prod(shape)
    # Lists of lists of nothing take memory, too.
    if math.prod(max(1, width) for width in shape) > max(MOST_VALUES, tensor.ByteSize()):
        raise ValueError(f"expected fewer elements. Received: a tensor of shape {list(shape)}")
    _, field, code = DTYPES[tensor.dtype]
    if not tensor.tensor_content:
        values = list(getattr(tensor, field))
        # A TensorProto may leave out repetitions of its last value.
        values += values[-1:] * (size - len(values))
    elif tensor.dtype == STRING:
        values = _content_strings(tensor.tensor_content, size)
    else:
        values = _content_numbers(tensor.tensor_content, code)
    if len(values) != size:
        raise ValueError(f"expected values of shape {list(shape)}. Received: {len(values)}")
    for axis in range(len(shape) - 1, 0, -1):
        width, count = shape[axis], math.prod(shape[:axis])
        values = [values[row * width : (row + 1) * width] for row in range(count)]
    return values if shape else values[0]


def _content_numbers(content: bytes, code: str) -> list[Any]:
    width = struct.calcsize(f"<{code}")
    if len(content) % width:
        raise ValueError(f"expected values of {width} bytes each. Received: {len(content)} bytes")
    return list(struct.unpack(f"<{len(content) // width}{code}", content))


def _content_strings(content: bytes, count: int) -> list[bytes]:
    """Strings of `tensor_content`: their lengths as varints, then the bytes of all."""
    lengths, position = [], 0
    for _ in range(count):
        length, shift = 0, 0
        while True:
            if position == len(content) or shift > 63:
                raise ValueError("expected the lengths of all strings. Received: a part")
            byte = content[position]
            position += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        lengths.append(length)
    if position + sum(lengths) != len(content):
        raise ValueError(
            f"expected strings of {sum(lengths)} bytes. Received: {len(content) - position}"
        )
    strings = []
    for length in lengths:
        strings.append(content[position : position + length])
        position += length
    return strings
