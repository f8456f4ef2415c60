"""TensorFlow Serving's messages. `make messages` compiles serving.proto to their descriptor."""

from pathlib import Path

from google.protobuf import (  # noqa: F401 - serving.proto imports them
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    wrappers_pb2,
)

_content = Path(__file__).with_name("serving.binpb").read_bytes()
(_file,) = descriptor_pb2.FileDescriptorSet.FromString(_content).file
DESCRIPTOR = descriptor_pool.Default().AddSerializedFile(_file.SerializeToString())
for _name, _message in DESCRIPTOR.message_types_by_name.items():
    globals()[_name] = message_factory.GetMessageClass(_message)
