"""Tensors that are not what they say: refused before anything is spent on them."""

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import classification_pb2

from serving.savedmodel.status import StatusError
from serving.server.admission import check_inputs
from serving.server.tensors import to_array, to_proto
from tests.attack.conftest import FLOAT, STRING, serving, tensor_request, within
from tests.serving.conftest import error_of
from tests.serving.test_versions import request

INVALID = grpc.StatusCode.INVALID_ARGUMENT
VARIANT, RESOURCE, INT8, COMPLEX = 21, 20, 6, 8

BAD = {
    "a float that is repeated 2^40 times": dict(dtype=FLOAT, dims=[2**40], float_val=[1.0]),
    "a text that is repeated 2^40 times": dict(dims=[2**40], string_val=[b"a"]),
    "no value for 2^40": dict(dims=[2**40]),
    "sizes whose product is beyond int64": dict(dims=[2**62, 2**62, 5], string_val=[b"a"]),
    "a row of 2^29 values": dict(dims=[1, 2**29], string_val=[b"a"]),
    "a negative size": dict(dims=[-1], string_val=[b"a"]),
    "300 dimensions": dict(dims=[1] * 300, string_val=[b"a"]),
    "a variant": dict(dtype=VARIANT, dims=[1]),
    "a resource": dict(dtype=RESOURCE, dims=[1]),
    "no type": dict(dtype=0, dims=[1]),
    "an unknown type": dict(dtype=99, dims=[1]),
    "a reference": dict(dtype=STRING + 100, dims=[1], string_val=[b"a"]),
    "strings as content": dict(dims=[1], tensor_content=b"abc"),
    "more values than declared": dict(dims=[1], string_val=[b"a", b"b"]),
    "values for no row": dict(dims=[0], string_val=[b"a"]),
    "the wrong rank": dict(dims=[1, 1], string_val=[b"a"]),
    "a scalar": dict(string_val=[b"a"]),
    "2,000 rows": dict(dims=[2000], string_val=[b"a"]),
    "2,000 rows, all sent": dict(dims=[2000], string_val=[b"a"] * 2000),
}


@pytest.fixture(scope="module", params=["alone", "batching"])
def server(request, saved, tmp_path_factory):
    root = tmp_path_factory.mktemp("tensors")
    (root / "models").mkdir()
    (root / "models" / "1").symlink_to(saved / "upper")
    flags = ["--enable_batching"] if request.param == "batching" else []
    with serving(
        "--max_request_rows=1000", "--model_name=upper", f"--model_base_path={root}/models", *flags
    ) as server:
        yield server


@pytest.mark.parametrize("bad", BAD)
def test_a_tensor_that_is_not_acceptable_is_refused_at_once(server, stubs, bad):
    client = stubs(f"localhost:{server.port}")
    with within(8):
        code, message = error_of(client.prediction.Predict, tensor_request(**BAD[bad]), timeout=30)
    assert (code, len(message) < 300) == (INVALID, True)
    with within(8):
        assert client.prediction.Predict(request(), timeout=30).outputs["translation"]


def test_a_repeated_value_is_as_many_rows(server, stubs):
    client = stubs(f"localhost:{server.port}")
    made = tensor_request(dims=[7], string_val=[b"a", b"b"])
    found = client.prediction.Predict(made, timeout=30).outputs["translation"].string_val
    assert list(found) == [b"A", *[b"B"] * 6]


def test_a_context_is_not_copied_without_a_bound(victim, stubs):
    made = classification_pb2.ClassificationRequest()
    made.model_spec.name = "half"
    made.model_spec.signature_name = "classify"
    target = made.input.example_list_with_context
    target.context.features.feature["x"].bytes_list.value.append(b"x" * 2**20)
    for count, words in ((999, "more than"), (2000, "Task size 2000 is larger")):
        del target.examples[:]
        for _ in range(count):
            target.examples.add()
        client = stubs(f"localhost:{victim.port}")
        with within(8):
            code, message = error_of(client.prediction.Classify, made, timeout=30)
        assert code == INVALID
        assert words in message


@pytest.mark.parametrize(
    "dtype", ["int8", "uint8", "int64", "uint64", "float16", "bool", "complex64", "double"]
)
@pytest.mark.parametrize("as_content", [False, True])
def test_good_tensors_of_any_dtype_are_counted_and_read(dtype, as_content):
    array = (np.arange(35).reshape(5, 7) % 3).astype(dtype)
    proto = tf.make_tensor_proto(array)
    if not as_content:
        proto = to_proto(array)
    info = meta_graph_pb2.TensorInfo(dtype=proto.dtype)
    assert check_inputs({"x": proto}, {"x": info}, {"x": 2}, 5) == 5
    np.testing.assert_array_equal(to_array(proto), array)
    with pytest.raises(StatusError, match="Task size 5 is larger"):
        check_inputs({"x": proto}, {"x": info}, {"x": 2}, 4)
