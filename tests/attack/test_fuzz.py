"""Requests and models that nobody wrote, against the server in a process of its own.

It must answer every one of them and stay below a memory limit. The same cases are drawn in each
run; `make fuzz` draws others, for longer: FUZZ_SECONDS a test, FUZZ_SEED.
"""

import gzip
import http.client
import json
import os
import shutil
import time

import grpc
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from tensorflow_serving.apis import classification_pb2, predict_pb2

from tests.attack.conftest import ServerProcess, add_version
from tests.serving.conftest import Client, labelled_models
from tests.serving.test_versions import request, served, states

SECONDS = float(os.environ.get("FUZZ_SECONDS", "10"))
SEED = int(os.environ.get("FUZZ_SEED", "7"))
MOST_MEGABYTES = 400  # more than when it was ready
fuzzed = settings(
    max_examples=200 if SECONDS <= 10 else 10**7,
    derandomize=False,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


class Clock:
    """Ends a test that draws on: examples beyond the time do nothing."""

    def __init__(self):
        self.end = time.monotonic() + SECONDS

    @property
    def out(self):
        return time.monotonic() > self.end


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(scope="module")
def fuzzed_server(saved, tmp_path_factory):
    root = tmp_path_factory.mktemp("fuzz")
    config = labelled_models(saved, root)
    server = ServerProcess(
        f"--model_config_file={config}",
        "--file_system_poll_wait_seconds=1",
        log=root / "server.log",
    )
    server.root = root
    try:
        server.wait_ready()
        server.limit = server.megabytes() + MOST_MEGABYTES
        server.client = Client(server.target)
        yield server
        assert server.process.poll() is None, server.log.read_text()[-3000:]
        assert "failed inside the server" not in server.log.read_text()
    finally:
        server.kill()


def send(server, method, data):
    """Send bytes as a request; they must be answered."""
    call = server.client.channel.unary_unary(f"/tensorflow.serving.{method}")
    try:
        call(data, timeout=20)
    except grpc.RpcError as error:
        code, details = error.code(), error.details()
        bad = (
            grpc.StatusCode.UNAVAILABLE,
            grpc.StatusCode.UNKNOWN,
            grpc.StatusCode.DEADLINE_EXCEEDED,
        )
        assert code not in bad, (code, details)
        if code == grpc.StatusCode.INTERNAL:
            assert details == "Exception deserializing request!"
    assert server.megabytes() < server.limit


sizes = st.one_of(
    st.integers(0, 5),
    st.sampled_from([-(2**63), -1, 1000, 1001, 2**20, 2**31, 2**32, 2**40, 2**62, 2**63 - 1]),
)
dtypes = st.one_of(st.sampled_from([1, 3, 7, 9, 14, 19]), st.integers(0, 140), st.integers(-5, 200))
texts = st.one_of(st.binary(max_size=40), st.sampled_from([b"", b"one two", b"x" * 5000]))
numbers = st.one_of(st.integers(-3, 300), st.sampled_from([-(2**31), 2**31 - 1]))


@st.composite
def tensors(draw):
    proto = tf.make_tensor_proto(0)
    proto.Clear()
    proto.dtype = draw(dtypes)
    for size in draw(st.lists(sizes, max_size=4)):
        proto.tensor_shape.dim.add(size=size)
    proto.tensor_shape.unknown_rank = draw(st.sampled_from([False] * 9 + [True]))
    for name, values in {
        "string_val": texts,
        "float_val": st.floats(width=32),
        "int_val": numbers,
        "int64_val": st.integers(-(2**63), 2**63 - 1),
        "half_val": numbers,
        "bool_val": st.booleans(),
        "double_val": st.floats(),
        "scomplex_val": st.floats(width=32),
        "uint64_val": st.integers(0, 2**64 - 1),
    }.items():
        if draw(st.integers(0, 3)) == 0:
            getattr(proto, name).extend(draw(st.lists(values, max_size=6)))
    if draw(st.integers(0, 5)) == 0:
        proto.tensor_content = draw(st.binary(max_size=40))
    return proto


@st.composite
def predict_requests(draw):
    made = predict_pb2.PredictRequest()
    made.model_spec.name = draw(st.sampled_from(["upper", "half", "none", ""]))
    made.model_spec.signature_name = draw(
        st.sampled_from(["", "translate", "nbest", "align", "sum", "classify", "regress", "none"])
    )
    if draw(st.integers(0, 5)) == 0:
        made.model_spec.version.value = draw(st.integers(-(2**63), 2**63 - 1))
    for alias in draw(st.sets(st.sampled_from(["text", "x", "a", "b", "inputs"]), max_size=3)):
        made.inputs[alias].CopyFrom(draw(tensors()))
    made.output_filter.extend(
        draw(st.lists(st.sampled_from(["y", "sum", "scores", "z"]), max_size=3))
    )
    return made


def damaged(good):
    """Strategy: the bytes with some of them changed, cut out or put in."""

    @st.composite
    def strategy(draw):
        data = bytearray(good)
        for _ in range(draw(st.integers(1, 6))):
            place = draw(st.integers(0, max(0, len(data) - 1)))
            change = draw(st.sampled_from(["set", "cut", "put"]))
            if change == "set" and data:
                data[place] = draw(st.integers(0, 255))
            elif change == "cut":
                del data[place : place + draw(st.integers(1, 9))]
            else:
                data[place:place] = draw(st.binary(max_size=9))
        return bytes(data)

    return strategy()


@seed(SEED)
@fuzzed
@given(made=predict_requests())
def test_predict_requests(fuzzed_server, clock, made):
    if not clock.out:
        send(fuzzed_server, "PredictionService/Predict", made.SerializeToString())


def classification():
    made = classification_pb2.ClassificationRequest()
    made.model_spec.name = "half"
    made.model_spec.signature_name = "classify"
    example = made.input.example_list.examples.add()
    example.features.feature["x"].float_list.value.append(1.0)
    return made


METHODS = {
    "PredictionService/Predict": request(),
    "PredictionService/Classify": classification(),
    "PredictionService/Regress": classification(),
    "PredictionService/MultiInference": classification(),
    "PredictionService/GetModelMetadata": classification(),
    "ModelService/GetModelStatus": classification(),
}


@pytest.mark.parametrize("method", METHODS)
def test_damaged_messages(fuzzed_server, method):
    ends = Clock()
    ends.end = time.monotonic() + SECONDS / len(METHODS)

    @seed(SEED)
    @fuzzed
    @given(data=damaged(METHODS[method].SerializeToString()))
    def run(data):
        if not ends.out:
            send(fuzzed_server, method, data)

    run()


values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(),
        st.text(st.characters(), max_size=20),
        st.sampled_from([10**400, "\ud800", {"b64": "?"}, {"b64": "w6k="}, 0.0, 1, "one two"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(["text", "x", "a", "b", "b64", "\ud800", "inputs"]), inner, max_size=3
        ),
    ),
    max_leaves=12,
)
bodies = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            "instances": st.one_of(values, st.lists(values, min_size=1, max_size=4)),
            "inputs": values,
            "examples": st.lists(values, max_size=3),
            "context": values,
            "signature_name": st.one_of(values, st.sampled_from(["sum", "classify", "align"])),
        },
    ).map(lambda document: json.dumps(document).encode()),
    damaged(b'{"instances": [{"a": 1.5, "b": 7}, {"a": 2, "b": 3}], "signature_name": "sum"}'),
    st.binary(max_size=60),
)
paths = st.sampled_from(
    [
        f"/v1/models/{name}:{method}"
        for name in ("upper", "half", "half/versions/3", "none", "half/labels/stable")
        for method in ("predict", "classify", "regress", "x")
    ]
)


@seed(SEED)
@fuzzed
@given(path=paths, body=bodies, encoding=st.sampled_from(["", "", "gzip", "as gzip"]))
def test_rest_bodies(fuzzed_server, clock, path, body, encoding):
    if clock.out:
        return
    if encoding == "gzip":
        body = gzip.compress(body)
    connection = http.client.HTTPConnection("127.0.0.1", fuzzed_server.rest_port, timeout=20)
    headers = {"Content-Encoding": "gzip"} if encoding else {}
    connection.request("POST", path, body, headers)
    response = connection.getresponse()
    content = response.read()
    connection.close()
    assert response.status in (200, 400, 404, 413, 501), content[:300]
    assert fuzzed_server.megabytes() < fuzzed_server.limit


def test_damaged_saved_models(fuzzed_server, saved):
    """Versions whose files are cut, empty, or others' are never served; what was there is."""
    base, server = fuzzed_server.root / "upper", fuzzed_server
    number = 1

    @seed(SEED)
    @settings(fuzzed, max_examples=4 if SECONDS <= 10 else 10**6)
    @given(
        file=st.sampled_from(["saved_model.pb", "variables.index", "variables.data"]),
        damage=st.sampled_from(["cut", "empty", "another's", "noise"]),
        share=st.floats(0.01, 0.99),
        noise=st.binary(min_size=64, max_size=64),
    )
    def run(file, damage, share, noise):
        nonlocal number
        if time.monotonic() > end:
            return
        number += 1
        aside = base / f"writing-{number}"
        shutil.copytree(saved / "upper2", aside)
        path = next(path for path in aside.rglob("*") if path.name.startswith(file))
        whole = path.read_bytes()
        place = int(len(whole) * share)
        other = next((saved / "half").rglob(f"{file}*")).read_bytes()
        path.write_bytes(
            {
                "cut": whole[:place],
                "empty": b"",
                "another's": other,
                "noise": noise * (1 + len(whole) // len(noise)),
            }[damage]
        )
        aside.rename(base / str(number))
        deadline = time.monotonic() + 6  # a version that is not complete has no state
        while time.monotonic() < deadline:
            assert served(server.client) in (1, number)
            if states(server.client).get(number) in ("END", "AVAILABLE"):
                break
            time.sleep(0.2)
        if states(server.client).get(number) == "AVAILABLE":
            # The cut was behind what is read: then it must answer.
            assert served(server.client) == number
        shutil.rmtree(base / str(number))
        while served(server.client) != 1:
            time.sleep(0.1)
        assert server.megabytes() < server.limit

    end = time.monotonic() + max(SECONDS, 20)
    run()
    assert number > 2
    number += 1
    add_version(saved / "upper2", base, number)
    deadline = time.monotonic() + 60
    while served(server.client) != number:
        assert time.monotonic() < deadline
        time.sleep(0.1)
