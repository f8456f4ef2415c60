"""Requests that are not what they say, too many, too large or too long; and drawn ones."""

import json
import threading

import grpc
import numpy as np
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensorflow.core.protobuf import meta_graph_pb2

from serving.client._protobuf import DTYPES
from serving.loaded._status import Code, StatusError
from serving.server._tensors import Limits, check_shapes, read_tensors, to_proto
from tests.attack.conftest import FLOAT, STRING, tensor_request
from tests.serving.conftest import add_version, error_of, in_flight, serving, two_models
from tests.serving.test_rest import ask
from tests.serving.test_versions import eventually, request, states

Status = grpc.StatusCode
RESOURCE = 20

BAD = {
    "a float that is repeated 2^40 times": dict(dtype=FLOAT, dims=[2**40], float_val=[1.0]),
    "no value for 2^40": dict(dims=[2**40]),
    "sizes whose product is beyond int64": dict(dims=[2**62, 2**62, 5], string_val=[b"a"]),
    "a row of 2^29 values": dict(dims=[1, 2**29], string_val=[b"a"]),
    "a negative size": dict(dims=[-1], string_val=[b"a"]),
    "300 dimensions": dict(dims=[1] * 300, string_val=[b"a"]),
    "a resource": dict(dtype=RESOURCE, dims=[1]),
    "no type": dict(dtype=0, dims=[1]),
    "strings as content": dict(dims=[1], tensor_content=b"abc"),
    "more values than declared": dict(dims=[1], string_val=[b"a", b"b"]),
    "values for no row": dict(dims=[0], string_val=[b"a"]),
    "the wrong rank": dict(dims=[1, 1], string_val=[b"a"]),
    "a scalar": dict(string_val=[b"a"]),
    "a long text, repeated": dict(dims=[1000], string_val=[b"a" * 2000]),
    "2,000 rows, all sent": dict(dims=[2000], string_val=[b"a"] * 2000),
}


@pytest.fixture(scope="module")
def server(saved, tmp_path_factory):
    flags = ["--max_request_rows=1000", "--max_request_bytes=1000000", "--max_waiting_requests=10"]
    flags += [f"--model_config_file={two_models(saved, tmp_path_factory.mktemp('bounds'))}"]
    with serving(*flags, rest=True) as server:
        yield server


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_tensor_that_is_not_acceptable_is_refused_at_once(server, stubs, bad):
    predict = stubs(f"localhost:{server.port}").prediction.Predict
    code, message = error_of(predict, tensor_request(**bad), timeout=30)
    assert (code, len(message) < 300, "\n" in message) == (Status.INVALID_ARGUMENT, True, False)
    assert predict(request(), timeout=30).outputs["translation"]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64", "bool", "double"])
def test_good_tensors_of_any_dtype_are_counted_and_read(dtype):
    array = (np.arange(35).reshape(5, 7) % 3).astype(dtype)
    for proto in (tf.make_tensor_proto(array), to_proto(array)):
        info = meta_graph_pb2.TensorInfo(dtype=proto.dtype)
        read = read_tensors({"x": proto}, {"x": info}, Limits(5, 99, 999, 60))
        np.testing.assert_array_equal(read["x"], array)


@pytest.mark.parametrize("number", DTYPES)
@pytest.mark.parametrize("shape", [[0, 2**62], [2**40, 0, 2**40], [0, 2**63 - 1]])
def test_an_empty_tensor_of_a_huge_shape_is_the_clients_error(number, shape):
    made = tensor_request(dtype=number, dims=shape).inputs["text"]
    info = meta_graph_pb2.TensorInfo(dtype=number)
    with pytest.raises(StatusError) as caught:
        read_tensors({"x": made}, {"x": info}, Limits(5, 99, 999, 60))
    assert caught.value.code == Code.INVALID_ARGUMENT


def test_positions_are_bounded_as_rows_are():
    info, limits = meta_graph_pb2.TensorInfo(), Limits(999, 100, 9, 60)
    for size in (-1, -1, 3):
        info.tensor_shape.dim.add(size=size)
    for good in ((7, 14), (101, 1)):
        check_shapes({"x": np.zeros((*good, 3))}, {"x": info}, limits)
    size = "Task size 2 is larger than maximum input batch size 1"  # which clients read
    row = r"A row has 101 positions, such as events; the limit is 100\. "
    for wrong, message in (((2, 51), size), ((1, 101), row)):
        with pytest.raises(StatusError, match=message):
            check_shapes({"x": np.zeros((*wrong, 3))}, {"x": info}, limits)


def test_what_is_too_large_or_no_message_is_an_error(server, stubs):
    client, text = stubs(f"localhost:{server.port}"), "x" * 1_000_001
    call = client.channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
    unread = Status.INVALID_ARGUMENT, "The message of the request cannot be parsed"
    assert error_of(call, b"\xff\xff\xff", timeout=30) == unread
    code, _ = error_of(client.prediction.Predict, request(text=text), timeout=30)
    assert code == Status.RESOURCE_EXHAUSTED
    status, answer = ask(server.rest_port, "/v1/models/upper:predict", {"instances": [text]})
    assert (status, answer["error"]) == (413, "The body is larger than 1000000 bytes")


# Too many, too long


@pytest.fixture
def hold(server, monkeypatch):
    """Runs of the model `upper` wait for this event, and are counted by it."""
    gate, model = threading.Event(), server.models._models["upper"].versions[1].model
    gate.runs, run = 0, model.run

    def wait(*arguments):
        gate.runs += 1
        gate.wait(120)
        return run(*arguments)

    monkeypatch.setattr(model, "run", wait)
    yield gate
    gate.set()


def busy(server, count):
    eventually(lambda: server._workers.busy() == count)


def test_too_many_requests_are_refused_and_those_that_are_left_are_not_run(server, stubs, hold):
    client, other = (stubs(f"localhost:{server.port}") for _ in range(2))
    calls = [client.prediction.Predict.future(request(), timeout=120) for _ in range(64)]
    eventually(lambda: hold.runs)
    busy(server, 64)
    waiting = [client.prediction.Predict.future(request(), timeout=120) for _ in range(10)]
    busy(server, 74)
    code, message = error_of(other.prediction.Predict, request(), timeout=60)
    assert (code, "already has 74 requests" in message) == (Status.RESOURCE_EXHAUSTED, True)
    status, _ = ask(server.rest_port, "/v1/models/upper:predict", {"instances": ["a"]})
    assert status == 429
    health = health_pb2_grpc.HealthStub(other.channel)
    assert health.Check(health_pb2.HealthCheckRequest(), timeout=20).status == 1
    assert states(other) == {1: "AVAILABLE"}
    assert in_flight(server.rest_port) == 74
    for call in waiting:
        call.cancel()
    busy(server, 64)
    good = other.prediction.Predict.future(request(), timeout=120)
    busy(server, 65)
    hold.set()
    assert {call.code() for call in (*calls, good)} == {Status.OK}
    assert hold.runs == 65


def test_a_run_ends_at_the_deadline_or_at_the_limit_of_all(saved, tmp_path, stubs):
    add_version(saved / "endless", tmp_path / "endless", 1)
    flags = "--max_request_seconds=2", "--enable_batching"
    with serving(*flags, base=tmp_path / "endless", rest=True) as server:
        predict = stubs(f"localhost:{server.port}").prediction.Predict
        for timeout in (0.3, None):
            code, _ = error_of(predict, request("endless", "count"), timeout)
            assert code == Status.DEADLINE_EXCEEDED
        gone = predict.future(request("endless", "count"))
        eventually(lambda: server._workers.busy() > 0)
        gone.cancel()
        busy(server, 0)  # its run ends, too
        body = {"instances": ["count"]}
        status, _ = ask(server.rest_port, "/v1/models/endless:predict", body)
        assert status == 504
        assert predict(request("endless", "no"), timeout=60)


# Drawn requests

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["x", "text", "a", "b", "b64"]), inner, max_size=3)
    ),
    max_leaves=12,
)
FUZZED = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@FUZZED
@given(
    document=st.fixed_dictionaries(
        {},
        optional={
            "instances": VALUES | st.lists(VALUES, max_size=4),
            "inputs": VALUES,
            "signature_name": VALUES | st.sampled_from(["sum", "align"]),
        },
    ),
    model=st.sampled_from(["half", "upper"]),
)
def test_any_json_is_answered(protocol_server, document, model):
    body = json.dumps(document).encode()
    status, answer = ask(protocol_server.rest_port, f"/v1/models/{model}:predict", body)
    assert status in (200, 400), answer
    assert status == 200 or "\n" not in answer["error"]


@FUZZED
@given(
    dtype=st.integers(0, 25),
    dims=st.lists(st.integers(-1, 5) | st.integers(-(2**63), 2**63 - 1), max_size=3),
    values=st.lists(st.binary(max_size=9), max_size=4),
    content=st.binary(max_size=9),
    signature=st.sampled_from(["", "nbest", "align", "x"]),
)
def test_any_tensor_is_answered(client, dtype, dims, values, content, signature):
    fields = {"string_val": values} if dtype == STRING else {"tensor_content": content}
    made = tensor_request(dtype=dtype, dims=dims, signature=signature, **fields)
    call = client.prediction.Predict.future(made, timeout=60)
    assert call.code() in (Status.OK, Status.INVALID_ARGUMENT, Status.FAILED_PRECONDITION)
