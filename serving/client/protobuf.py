"""TensorFlow Serving's messages from protobuf alone, without TensorFlow.

The official stubs import all of TensorFlow. Here are the fields of them that a client needs, in
a descriptor pool of its own: the default pool refuses a second `tensorflow.TensorProto`, and both
may live in one process.
"""

import math
import struct
from collections.abc import Sequence
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

# Message: fields as (name, number, type); "*" marks a repeated field, "map " one with string keys,
# a capital letter or a dot a message.
_TENSORFLOW = {
    "TensorShapeProto.Dim": [("size", 1, "int64"), ("name", 2, "string")],
    "TensorShapeProto": [
        ("dim", 2, "*tensorflow.TensorShapeProto.Dim"),
        ("unknown_rank", 3, "bool"),
    ],
    "TensorProto": [
        ("dtype", 1, "int32"),
        ("tensor_shape", 2, "tensorflow.TensorShapeProto"),
        ("tensor_content", 4, "bytes"),
        ("float_val", 5, "*float"),
        ("double_val", 6, "*double"),
        ("int_val", 7, "*int32"),
        ("string_val", 8, "*bytes"),
        ("int64_val", 10, "*int64"),
        ("bool_val", 11, "*bool"),
    ],
    "TensorInfo": [
        ("name", 1, "string"),
        ("dtype", 2, "int32"),
        ("tensor_shape", 3, "tensorflow.TensorShapeProto"),
    ],
    "SignatureDef": [
        ("inputs", 1, "map tensorflow.TensorInfo"),
        ("outputs", 2, "map tensorflow.TensorInfo"),
        ("method_name", 3, "string"),
    ],
}
_SERVING = {
    "ModelSpec": [
        ("name", 1, "string"),
        ("version", 2, "google.protobuf.Int64Value"),
        ("signature_name", 3, "string"),
        ("version_label", 4, "string"),
    ],
    "PredictRequest": [
        ("model_spec", 1, "tensorflow.serving.ModelSpec"),
        ("inputs", 2, "map tensorflow.TensorProto"),
        ("output_filter", 3, "*string"),
    ],
    "PredictResponse": [
        ("outputs", 1, "map tensorflow.TensorProto"),
        ("model_spec", 2, "tensorflow.serving.ModelSpec"),
    ],
    "GetModelMetadataRequest": [
        ("model_spec", 1, "tensorflow.serving.ModelSpec"),
        ("metadata_field", 2, "*string"),
    ],
    "GetModelMetadataResponse": [
        ("model_spec", 1, "tensorflow.serving.ModelSpec"),
        ("metadata", 2, "map google.protobuf.Any"),
    ],
    "SignatureDefMap": [("signature_def", 1, "map tensorflow.SignatureDef")],
    "StatusProto": [("error_code", 1, "int32"), ("error_message", 2, "string")],
    "ModelVersionStatus": [
        ("version", 1, "int64"),
        ("state", 2, "int32"),
        ("status", 3, "tensorflow.serving.StatusProto"),
    ],
    "GetModelStatusRequest": [("model_spec", 1, "tensorflow.serving.ModelSpec")],
    "GetModelStatusResponse": [
        ("model_version_status", 1, "*tensorflow.serving.ModelVersionStatus")
    ],
}
_Field = descriptor_pb2.FieldDescriptorProto


def _add_field(message: descriptor_pb2.DescriptorProto, name: str, number: int, kind: str) -> None:
    field = message.field.add(name=name, number=number)
    repeated = kind.startswith(("*", "map "))
    field.label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
    kind = kind.removeprefix("*")
    if kind.startswith("map "):
        entry = message.nested_type.add(
            name="".join(part.title() for part in name.split("_")) + "Entry"
        )
        entry.options.map_entry = True
        _add_field(entry, "key", 1, "string")
        _add_field(entry, "value", 2, kind[4:])
        field.type = _Field.TYPE_MESSAGE
        field.type_name = entry.name
    elif "." in kind:
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".{kind}"
    else:
        field.type = getattr(_Field, f"TYPE_{kind.upper()}")


def _file(
    name: str, package: str, messages: dict[str, list], imports: Sequence[str]
) -> descriptor_pb2.FileDescriptorProto:
    proto = descriptor_pb2.FileDescriptorProto(
        name=name, package=package, syntax="proto3", dependency=imports
    )
    made: dict[str, descriptor_pb2.DescriptorProto] = {}
    for full_name in sorted(messages, key=lambda full: full.count(".")):
        outer, _, inner = full_name.rpartition(".")
        message = made[outer].nested_type.add() if outer else proto.message_type.add()
        message.name = inner
        made[full_name] = message
        for field in messages[full_name]:
            _add_field(message, *field)
    return proto


def _build() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    well_known = [any_pb2.DESCRIPTOR, wrappers_pb2.DESCRIPTOR]
    for known in well_known:
        pool.AddSerializedFile(known.serialized_pb)
    imports = [known.name for known in well_known]
    tensorflow = _file("client/tensorflow.proto", "tensorflow", _TENSORFLOW, imports)
    serving = _file(
        "client/serving.proto", "tensorflow.serving", _SERVING, [*imports, tensorflow.name]
    )
    pool.Add(tensorflow)
    pool.Add(serving)
    return pool


_pool = _build()


def _message(full_name: str) -> Any:
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(full_name))


TensorProto = _message("tensorflow.TensorProto")
ModelSpec = _message("tensorflow.serving.ModelSpec")
PredictRequest = _message("tensorflow.serving.PredictRequest")
PredictResponse = _message("tensorflow.serving.PredictResponse")
GetModelMetadataRequest = _message("tensorflow.serving.GetModelMetadataRequest")
GetModelMetadataResponse = _message("tensorflow.serving.GetModelMetadataResponse")
SignatureDefMap = _message("tensorflow.serving.SignatureDefMap")
GetModelStatusRequest = _message("tensorflow.serving.GetModelStatusRequest")
GetModelStatusResponse = _message("tensorflow.serving.GetModelStatusResponse")

_VALUES = {
    FLOAT: ("float_val", "f"),
    DOUBLE: ("double_val", "d"),
    INT32: ("int_val", "i"),
    STRING: ("string_val", ""),
    INT64: ("int64_val", "q"),
    BOOL: ("bool_val", "?"),
}


def string_tensor(strings: Sequence[bytes]) -> Message:
    """TensorProto of shape (len(strings),)."""
    tensor = TensorProto(dtype=STRING, string_val=strings)
    tensor.tensor_shape.dim.add(size=len(strings))
    return tensor


def float_matrix(rows: Sequence[Sequence[float]], width: int) -> Any:
    """TensorProto of floats of shape (len(rows), width)."""
    values = [value for row in rows for value in row]
    tensor = TensorProto(dtype=FLOAT, tensor_content=struct.pack(f"<{len(values)}f", *values))
    tensor.tensor_shape.dim.add(size=len(rows))
    tensor.tensor_shape.dim.add(size=width)
    return tensor


def tensor_shape(tensor: Message) -> tuple[int, ...]:
    """The shape of a TensorProto. Raises ValueError where it is not known."""
    shape = tuple(dim.size for dim in tensor.tensor_shape.dim)
    if tensor.tensor_shape.unknown_rank or any(size < 0 for size in shape):
        raise ValueError("expected a tensor of a known shape")
    return shape


def tensor_values(tensor: Message) -> Any:
    """The values of a TensorProto as lists nested like its shape; strings are bytes.

    Raises ValueError for a dtype that no signature here returns, values that do not fill the
    shape, and a shape that has many more elements than were sent.
    """
    if tensor.dtype not in _VALUES:
        raise ValueError(
            f"a tensor of data type {tensor.dtype} was received; expected one of 1, "
            "2, 3, 7, 9, 10 (float, double, int32, string, int64, bool)"
        )
    shape = tensor_shape(tensor)
    size = math.prod(shape)
    # Lists of lists of nothing take memory, too.
    if math.prod(max(1, width) for width in shape) > max(MOST_VALUES, tensor.ByteSize()):
        raise ValueError(f"a tensor of shape {list(shape)} was received, of too many elements")
    field, code = _VALUES[tensor.dtype]
    if not tensor.tensor_content:
        values = list(getattr(tensor, field))
        # A TensorProto may leave out repetitions of its last value.
        values += values[-1:] * (size - len(values))
    elif tensor.dtype == STRING:
        values = _content_strings(tensor.tensor_content, size)
    else:
        values = _content_numbers(tensor.tensor_content, code)
    if len(values) != size:
        raise ValueError(f"a tensor of shape {list(shape)} was received with {len(values)} values")
    for axis in range(len(shape) - 1, 0, -1):
        width, count = shape[axis], math.prod(shape[:axis])
        values = [values[row * width : (row + 1) * width] for row in range(count)]
    return values if shape else values[0]


def _content_numbers(content: bytes, code: str) -> list[Any]:
    width = struct.calcsize(f"<{code}")
    if len(content) % width:
        raise ValueError(f"{len(content)} bytes were received for values of {width} bytes each")
    return list(struct.unpack(f"<{len(content) // width}{code}", content))


def _content_strings(content: bytes, count: int) -> list[bytes]:
    """Strings of `tensor_content`: their lengths as varints, then the bytes of all."""
    lengths, position = [], 0
    for _ in range(count):
        length, shift = 0, 0
        while True:
            if position == len(content) or shift > 63:
                raise ValueError("the lengths of strings were received in part")
            byte = content[position]
            position += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        lengths.append(length)
    if position + sum(lengths) != len(content):
        raise ValueError(
            f"{len(content) - position} bytes were received for strings of {sum(lengths)} bytes"
        )
    strings = []
    for length in lengths:
        strings.append(content[position : position + length])
        position += length
    return strings
