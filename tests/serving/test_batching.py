"""Requests run together."""

import concurrent.futures
import threading
import time

import grpc
import numpy as np
import pytest

from serving.savedmodel.status import Code, StatusError
from serving.server.calls import Batcher, Call, Metrics
from serving.server.settings import Batching, read_batching
from tests.serving.conftest import serving
from tests.serving.test_versions import eventually, request


class Recorder:
    """Doubles its input, and records the sizes of the batches; `gate` holds it up."""

    def __init__(self):
        self.batches = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, inputs, outputs, call):
        self.batches.append(len(inputs["x"]))
        self.gate.wait(60)
        if (inputs["x"] == -1).any():
            raise StatusError(Code.INVALID_ARGUMENT, "minus one")
        return {"y": inputs["x"] * 2}


@pytest.fixture
def run():
    return Recorder()


@pytest.fixture
def batcher(run):
    """Makes a batcher of these parameters."""
    yield lambda **parameters: Batcher(Batching(**parameters), Metrics())
    run.gate.set()


def together(*calls):
    """Return the results or errors of concurrent calls, in order."""
    results = [None] * len(calls)

    def call(index):
        try:
            results[index] = calls[index]()
        except StatusError as error:
            results[index] = error

    threads = [threading.Thread(target=call, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
        time.sleep(0.01)
    for thread in threads:
        thread.join()
    return results


def ask(batcher, run, rows, timeout_ms=60_000, key="k"):
    inputs = {"x": np.asarray(rows) if rows else np.zeros(0, int)}
    return lambda: batcher.run(key, run, inputs, Call(timeout_ms / 1000))["y"].tolist()


def test_concurrent_requests_share_a_batch_and_get_their_own_rows(batcher, run):
    made = batcher(max_batch_size=7, batch_timeout_micros=30_000_000, num_batch_threads=1)
    calls = [ask(made, run, rows) for rows in ([1, 2], [3], [], [5, 6, 7, 8])]
    assert together(*calls) == [[2, 4], [6], [], [10, 12, 14, 16]]
    assert run.batches == [7]


def test_requests_of_another_kind_are_not_mixed(batcher, run):
    made = batcher(max_batch_size=100, batch_timeout_micros=100_000, num_batch_threads=1)
    calls = [
        ask(made, run, [1]),
        ask(made, run, [1.5]),
        ask(made, run, [[1, 2]]),
        ask(made, run, [1], key="other"),
    ]
    assert together(*calls) == [[2], [3.0], [[2, 4]], [2]]
    assert run.batches == [1, 1, 1, 1]


def test_a_request_whose_deadline_passes_in_the_queue_is_not_run(batcher, run):
    made = batcher(max_batch_size=1, num_batch_threads=1)
    run.gate.clear()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(ask(made, run, [1]))
        eventually(lambda: run.batches == [1])
        with pytest.raises(StatusError, match="Timed out waiting for notification") as caught:
            ask(made, run, [2], timeout_ms=100)()
        assert caught.value.code == Code.DEADLINE_EXCEEDED
        run.gate.set()
        assert first.result() == [2]
    assert ask(made, run, [3])() == [6]
    assert run.batches == [1, 1]


def test_a_bad_request_does_not_spoil_its_batch(batcher, run):
    made = batcher(max_batch_size=3, batch_timeout_micros=30_000_000, num_batch_threads=1)
    good, bad, other = together(*(ask(made, run, [n]) for n in (4, -1, 5)))
    assert (good, other) == ([8], [10])
    assert bad.message == "minus one"


@pytest.mark.parametrize(
    "inputs", [{"x": np.float32(1.0)}, {"x": np.ones(2), "z": np.ones(3)}], ids=["scalar", "rows"]
)
def test_inputs_that_cannot_be_batched_are_refused(batcher, run, inputs):
    with pytest.raises(StatusError, match="equal 0th-dimension size"):
        batcher().run("k", run, {x: np.asarray(inputs[x]) for x in inputs}, Call(60))


@pytest.mark.parametrize("shape", [(), (5,)])
def test_outputs_without_the_batch_in_front_are_an_error(batcher, shape):
    with pytest.raises(StatusError, match="its 0th dimension does not equal the sum") as caught:
        batcher().run("k", lambda *_: {"y": np.ones(shape)}, {"x": np.ones(2)}, Call(60))
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
        read_batching(tmp_path / "batching.config")


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
