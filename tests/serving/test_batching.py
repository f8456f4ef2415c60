"""Requests run together."""

import threading
import time

import grpc
import numpy as np
import pytest

from serving.loaded._status import Code, StatusError
from serving.server._calls import Metrics, Task, Workers
from serving.server._settings import Batching, read_batching
from tests.serving.conftest import call_of, serving
from tests.serving.test_versions import eventually, request


class Recorder:
    """Doubles its input, and records the sizes of the batches; `gate` holds it up."""

    def __init__(self):
        self.batches = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, inputs, call):
        self.batches.append(len(inputs["x"]))
        self.gate.wait(60)
        if (inputs["x"] == -1).any():
            raise StatusError(Code.INVALID_ARGUMENT, "minus one")
        return {"y": inputs["x"] * 2}


@pytest.fixture
def run():
    return Recorder()


@pytest.fixture
def workers(run, loop):
    """Makes workers with batching of these parameters."""
    yield lambda **parameters: Workers(
        parameters.pop("slots", 1), 1000, Metrics(), Batching(**parameters)
    )
    run.gate.set()


def ask(run, rows, key="k", seconds=60, client=None, cost=1):
    """A call that asks `run` for these rows."""
    inputs = {"x": np.asarray(rows) if rows else np.zeros(0, int)}
    task = Task(key, run, inputs, lambda outputs: outputs["y"].tolist())
    return call_of(task, cost, client, seconds, batching=True)


def test_concurrent_requests_share_a_batch_and_get_their_own_rows(workers, run, submit):
    made = workers(max_batch_size=7, batch_timeout_micros=30_000_000)
    futures = [submit(made, ask(run, rows)) for rows in ([1, 2], [3], [], [5, 6, 7, 8])]
    assert [future.result(30) for future in futures] == [[2, 4], [6], [], [10, 12, 14, 16]]
    assert run.batches == [7]


def test_a_batch_does_not_wait_for_longer_than_its_timeout(workers, run, submit):
    made = workers(max_batch_size=100, batch_timeout_micros=50_000)
    started = time.monotonic()
    assert submit(made, ask(run, [1])).result(30) == [2]
    assert 0.049 < time.monotonic() - started < 0.9


def test_requests_of_another_kind_are_not_mixed(workers, run, submit):
    made = workers(max_batch_size=100, batch_timeout_micros=100_000)
    calls = [ask(run, [1]), ask(run, [1.5]), ask(run, [[1, 2]]), ask(run, [1], key="other")]
    calls.append(ask(run, [1], cost=1000))
    futures = [submit(made, call) for call in calls]
    assert [future.result(30) for future in futures] == [[2], [3.0], [[2, 4]], [2], [2]]
    assert run.batches == [1, 1, 1, 1, 1]


def test_a_batch_is_filled_in_the_order_of_the_queue(workers, run, submit):
    made, batches = workers(max_batch_size=4), []

    def record(inputs, call):
        batches.append(inputs["x"].tolist())
        return run({"x": inputs["x"]}, call)

    run.gate.clear()
    held = submit(made, ask(run, [0], client="held", key="a"))
    eventually(lambda: len(run.batches) == 1)
    many = [submit(made, ask(record, [1], client="many")) for _ in range(20)]
    eventually(lambda: made.busy() == 21)
    few = [submit(made, ask(record, [2], client="few")) for _ in range(2)]
    eventually(lambda: made.busy() == 23)
    run.gate.set()
    for future in (held, *many, *few):
        future.result(30)
    assert batches[0] == [1, 2, 1, 2]


def test_a_bad_request_does_not_spoil_its_batch(workers, run, submit):
    made = workers(max_batch_size=3, batch_timeout_micros=30_000_000)
    good, bad, other = [submit(made, ask(run, [n])) for n in (4, -1, 5)]
    assert (good.result(30), other.result(30)) == ([8], [10])
    with pytest.raises(StatusError, match="minus one"):
        bad.result(30)


@pytest.mark.parametrize(
    "inputs", [{"x": np.float32(1.0)}, {"x": np.ones(2), "z": np.ones(3)}], ids=["scalar", "rows"]
)
def test_inputs_that_cannot_be_batched_are_refused(run, inputs):
    task = Task("k", run, {x: np.asarray(inputs[x]) for x in inputs}, dict)
    with pytest.raises(StatusError, match="equal 0th-dimension size"):
        task.rows()


@pytest.mark.parametrize("shape", [(), (5,)])
def test_outputs_without_the_batch_in_front_are_an_error(workers, submit, shape):
    call = ask(lambda *_: {"y": np.ones(shape)}, [1, 2])
    with pytest.raises(StatusError, match="its 0th dimension does not equal the sum") as caught:
        submit(workers(), call).result(30)
    assert caught.value.code == Code.FAILED_PRECONDITION


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_batch_size { value: 0 }", "max_batch_size must be positive; was 0"),
        ("batch_timeout_micros { value: -1 }", "batch_timeout_micros must be positive; was -1"),
        ("allowed_batch_sizes: 4", "Invalid protobuf file"),
        ("max_batch_sizes { value: 1 }", "Invalid protobuf file"),
    ],
)
def test_impossible_parameters_are_refused(tmp_path, text, message):
    (tmp_path / "batching.config").write_text(text)
    with pytest.raises(StatusError, match=message):
        read_batching(tmp_path / "batching.config", True)


def test_a_server_with_batching_answers_many_clients(base, tmp_path, stubs):
    parameters = tmp_path / "batching.config"
    parameters.write_text(
        "max_batch_size { value: 4 } batch_timeout_micros { value: 2000 } "
        "max_enqueued_batches { value: 100 }"
    )
    flags = "--enable_batching", f"--batching_parameters_file={parameters}"
    with serving(*flags, base=base) as server:
        client = stubs(f"localhost:{server.port}")
        texts = [f"text {n}" for n in range(50)]
        calls = [client.prediction.Predict.future(request(text=text), timeout=60) for text in texts]
        bad = client.prediction.Predict.future(request(text=1.0), timeout=60)
        received = [call.result().outputs["translation"].string_val[0].decode() for call in calls]
        assert received == [text.upper() for text in texts]
        assert bad.exception().code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "to be string but float" in bad.exception().details()
        too_many = request()
        too_many.inputs["text"].string_val.extend([b"x"] * 4)
        too_many.inputs["text"].tensor_shape.dim[0].size = 5
        with pytest.raises(grpc.RpcError, match="Task size 5 is larger than"):
            client.prediction.Predict(too_many)
