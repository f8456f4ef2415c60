import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, predict_pb2

from serving.client import _clients as clients
from serving.client import _protobuf as messages
from serving.client import _protocol, serving_pb2
from serving.server._tensors import to_proto


def test_fields_have_the_names_numbers_and_types_of_the_official_stubs():
    pool, alike = descriptor_pool.Default(), set()
    for name, ours in serving_pb2.DESCRIPTOR.message_types_by_name.items():
        for package in ("tensorflow.serving", "tensorflow"):
            with suppress(KeyError):  # the stubs have no messages of configuration files
                theirs = pool.FindMessageTypeByName(f"{package}.{name}").fields_by_name
                for field in ours.fields:
                    other = theirs[field.name]
                    assert (field.number, field.type) == (other.number, other.type)
                    assert field.is_repeated == other.is_repeated
                alike.add(name)
    assert alike >= {"TensorProto", "PredictRequest", "PredictResponse", "SignatureDefMap"}


def test_the_descriptor_is_that_of_the_file_of_messages(tmp_path):
    """`make messages` wrote it."""
    folder, made = Path(serving_pb2.__file__).parent, tmp_path / "serving.binpb"
    words = [f"-I{folder.parents[1]}", f"--descriptor_set_out={made}", folder / "serving.proto"]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *words], check=True)
    assert lines(folder / "serving.binpb") == lines(made)


def lines(path):
    """A descriptor as text, without names in JSON, which only some compilers add."""
    descriptor = descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes())
    return [line for line in str(descriptor).splitlines() if "json_name" not in line]


def serialized(message):
    return message.SerializeToString(deterministic=True)


@pytest.mark.parametrize(
    ("version", "label"), [(None, None), (7, None), (0, None), (None, "stable")]
)
def test_requests_are_those_of_the_official_stubs_byte_for_byte(version, label):
    texts = ["one", "", "é 日本", "a\x00b"]
    target = _protocol.Target("localhost:1", "en-fr", version, label)
    query = replace(clients._translate(texts), size=lambda _: 0)
    ours = _protocol.Call(query, target, 32).request()
    official = predict_pb2.PredictRequest()
    official.model_spec.name = "en-fr"
    official.model_spec.signature_name = "translate"
    if version is not None:
        official.model_spec.version.value = version
    if label is not None:
        official.model_spec.version_label = label
    official.inputs["text"].CopyFrom(
        tf.make_tensor_proto([text.encode() for text in texts], tf.string)
    )
    assert serialized(ours) == serialized(official)

    ours = _protocol.metadata_request(target)
    official_metadata = get_model_metadata_pb2.GetModelMetadataRequest(
        metadata_field=["signature_def"]
    )
    official_metadata.model_spec.CopyFrom(official.model_spec)
    official_metadata.model_spec.signature_name = ""
    assert serialized(ours) == serialized(official_metadata)

    ours = _protocol.status_request(target)
    official_status = get_model_status_pb2.GetModelStatusRequest()
    official_status.model_spec.CopyFrom(official_metadata.model_spec)
    assert serialized(ours) == serialized(official_status)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "bool", "string"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0), (0, 3), (2, 3, 5)])
@pytest.mark.parametrize("form", ["field", "content"])
def test_tensors_are_read_as_tensorflow_reads_them(rng, dtype, shape, form):
    if dtype == "string":
        words = [b"", b"a", "é".encode(), b"x" * 200, b"\x00\xff"]
        array = np.asarray(rng.choice(np.array(words, object), shape), object)
    else:
        array = (rng.normal(size=shape) * 3).astype(dtype)
    proto = tf.make_tensor_proto(array, tf.as_dtype(dtype))
    if form == "field":
        proto = to_proto(np.asarray(array))
    ours = messages.TensorProto.FromString(proto.SerializeToString())
    assert messages.tensor_values(ours) == array.tolist()
