"""Requests run together."""

import concurrent.futures
import threading
import time

import grpc
import numpy as np
import pytest
import tensorflow as tf

from serving.savedmodel.status import Code, StatusError
from serving.server.batching import BatchScheduler
from serving.server.call import Call
from serving.server.config_files import Batching, read_batching
from serving.server.monitoring import Metrics
from tests.serving.conftest import serving
from tests.serving.test_versions import eventually, request


class Recorder:
    """Doubles its input, and records the sizes of the batches; `gate` holds it up."""

    def __init__(self):
        self.batches = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, inputs, seconds):
        self.batches.append(len(inputs["x"]))
        self.gate.wait(60)
        if (inputs["x"] == -1).any():
            raise StatusError(Code.INVALID_ARGUMENT, "minus one")
        return {"y": inputs["x"] * 2}


@pytest.fixture
def run():
    return Recorder()


@pytest.fixture
def scheduler(run):
    """Makes a scheduler of these parameters; closes it."""
    made = []

    def make(**parameters):
        made.append(BatchScheduler(Batching(**parameters), Metrics()))
        return made[-1]

    yield make
    run.gate.set()
    for one in made:
        one.close()


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


def asked(scheduler, run, rows, timeout_ms=60_000, key="k"):
    inputs = {"x": np.asarray(rows) if rows else np.zeros(0, int)}
    return lambda: scheduler.run(key, run, inputs, Call(timeout_ms / 1000))["y"].tolist()


def test_concurrent_requests_share_a_batch_and_get_their_own_rows(scheduler, run):
    made = scheduler(max_batch_size=7, batch_timeout_micros=30_000_000, num_batch_threads=1)
    calls = [asked(made, run, rows) for rows in ([1, 2], [3], [], [5, 6, 7, 8])]
    assert together(*calls) == [[2, 4], [6], [], [10, 12, 14, 16]]
    assert run.batches == [7]


def test_a_batch_that_is_not_full_runs_after_the_timeout(scheduler, run):
    made = scheduler(max_batch_size=100, batch_timeout_micros=100_000, num_batch_threads=1)
    started = time.monotonic()
    assert asked(made, run, [1])() == [2]
    assert 0.1 <= time.monotonic() - started < 20


def test_requests_of_another_kind_are_not_mixed(scheduler, run):
    made = scheduler(max_batch_size=100, batch_timeout_micros=100_000, num_batch_threads=1)
    calls = [
        asked(made, run, [1]),
        asked(made, run, [1.5]),
        asked(made, run, [[1, 2]]),
        asked(made, run, [1], key="other"),
    ]
    assert together(*calls) == [[2], [3.0], [[2, 4]], [2]]
    assert run.batches == [1, 1, 1, 1]


def test_batches_are_filled_up_to_an_allowed_size(scheduler, run):
    made = scheduler(
        max_batch_size=8, allowed_batch_sizes=(2, 8), batch_timeout_micros=0, num_batch_threads=1
    )
    assert asked(made, run, [1, 2, 3])() == [2, 4, 6]
    assert run.batches == [8]


def test_inputs_of_different_lengths_are_padded_where_asked_for(scheduler):
    seen = []

    def run(inputs, seconds):
        seen.append(inputs["x"].tolist())
        return {"y": inputs["x"]}

    made = scheduler(
        max_batch_size=2,
        batch_timeout_micros=30_000_000,
        num_batch_threads=1,
        pad_variable_length_inputs=True,
    )
    together(asked(made, run, [[7, 1]]), asked(made, run, [[5, 2, 3]]))
    assert seen == [[[7, 1, 7], [5, 2, 3]]]


def test_a_full_queue_is_unavailable(scheduler, run):
    made = scheduler(max_batch_size=1, max_enqueued_batches=2, num_batch_threads=1)
    run.gate.clear()
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        found = [pool.submit(asked(made, run, [0]))]
        eventually(lambda: run.batches == [1])
        for number in (1, 2):
            found.append(pool.submit(asked(made, run, [number])))
            eventually(lambda waiting=number: made.waiting == waiting)
        for number in (3, 4):
            with pytest.raises(StatusError) as caught:
                asked(made, run, [number])()
            assert (caught.value.code, caught.value.message) == (
                Code.UNAVAILABLE,
                "The batch scheduling queue to which this task was submitted is full",
            )
        run.gate.set()
        assert [one.result() for one in found] == [[0], [2], [4]]


def test_a_request_that_is_too_large_is_refused(scheduler, run):
    made = scheduler(max_batch_size=3)
    with pytest.raises(StatusError, match="Task size 4 is larger than maximum input batch size 3"):
        asked(made, run, [1, 2, 3, 4])()


def test_a_request_whose_deadline_passes_in_the_queue_is_not_run(scheduler, run):
    made = scheduler(max_batch_size=1, num_batch_threads=1)
    run.gate.clear()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(asked(made, run, [1]))
        eventually(lambda: run.batches == [1])
        with pytest.raises(StatusError, match="Timed out waiting for notification") as caught:
            asked(made, run, [2], timeout_ms=100)()
        assert caught.value.code == Code.DEADLINE_EXCEEDED
        run.gate.set()
        assert first.result() == [2]
    assert asked(made, run, [3])() == [6]
    assert run.batches == [1, 1]


def test_a_bad_request_does_not_spoil_its_batch(scheduler, run):
    made = scheduler(max_batch_size=3, batch_timeout_micros=30_000_000, num_batch_threads=1)
    good, bad, other = together(*(asked(made, run, [n]) for n in (4, -1, 5)))
    assert (good, other) == ([8], [10])
    assert bad.message == "minus one"


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"x": np.float32(1.0)}, "at least one dimension"),
        ({"x": np.ones(2), "z": np.ones(3)}, "equal 0th-dimension size"),
    ],
)
def test_inputs_that_cannot_be_batched_are_refused(scheduler, run, inputs, message):
    inputs = {alias: np.asarray(value) for alias, value in inputs.items()}
    with pytest.raises(StatusError, match=message):
        scheduler().run("k", run, inputs, Call())


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({"y": np.float32(1.0)}, "Batched output tensor has 0 dimensions"),
        ({"y": np.ones(5)}, "0th dimension does not equal the sum"),
    ],
)
def test_outputs_without_the_batch_in_front_are_an_error(scheduler, outputs, message):
    outputs = {alias: np.asarray(value) for alias, value in outputs.items()}
    with pytest.raises(StatusError, match=message) as caught:
        scheduler().run("k", lambda inputs, seconds: outputs, {"x": np.ones(2)}, Call())
    assert caught.value.code == Code.FAILED_PRECONDITION


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_batch_size { value: 0 }", "max_batch_size must be positive; was 0"),
        ("batch_timeout_micros { value: -1 }", "must be non-negative; was -1"),
        ("max_batch_size { value: 8 } allowed_batch_sizes: 4", "last entry was 4; expected 8"),
        ("allowed_batch_sizes: 4 allowed_batch_sizes: 2", "in increasing order; were"),
        ("max_batch_sizes { value: 1 }", "Invalid protobuf file"),
    ],
)
def test_impossible_parameters_are_refused(tmp_path, text, message):
    (tmp_path / "batching.config").write_text(text)
    with pytest.raises(StatusError, match=message):
        read_batching(tmp_path / "batching.config")


def test_parameters_are_read_from_the_file(tmp_path):
    (tmp_path / "batching.config").write_text(
        "max_batch_size { value: 8 } batch_timeout_micros { value: 5 } "
        "max_enqueued_batches { value: 3 } num_batch_threads { value: 2 } "
        'thread_pool_name { value: "pool" } allowed_batch_sizes: 2 allowed_batch_sizes: 8 '
        "pad_variable_length_inputs: true"
    )
    expected = Batching(8, 5, 3, 2, (2, 8), True)
    assert read_batching(tmp_path / "batching.config") == expected
    assert read_batching(None) == Batching()


def test_a_server_with_batching_answers_many_clients(base, tmp_path, stubs):
    parameters = tmp_path / "batching.config"
    parameters.write_text(
        "max_batch_size { value: 4 } batch_timeout_micros { value: 2000 } "
        "max_enqueued_batches { value: 100 }"
    )
    flags = ["--model_name=upper", f"--model_base_path={base}", "--enable_batching"]
    with serving(*flags, f"--batching_parameters_file={parameters}") as server:
        client = stubs(f"localhost:{server.port}")
        texts = [f"text {n}" for n in range(50)]
        calls = [client.prediction.Predict.future(request(text=text), timeout=60) for text in texts]
        bad = client.prediction.Predict.future(request(text=1.0), timeout=60)
        found = [call.result().outputs["translation"].string_val[0].decode() for call in calls]
        assert found == [text.upper() for text in texts]
        assert bad.exception().code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "to be string but float" in bad.exception().details()
        too_many = request()
        too_many.inputs["text"].string_val.extend([b"x"] * 4)
        too_many.inputs["text"].tensor_shape.dim[0].size = 5
        with pytest.raises(grpc.RpcError, match="Task size 5 is larger than"):
            client.prediction.Predict(too_many)


def test_a_full_queue_is_unavailable_over_the_wire_and_the_server_goes_on(base, tmp_path, stubs):
    parameters = tmp_path / "batching.config"
    parameters.write_text(
        "max_batch_size { value: 20000 } max_enqueued_batches { value: 1 } "
        "num_batch_threads { value: 1 }"
    )
    flags = ["--model_name=upper", f"--model_base_path={base}", "--enable_batching"]
    with serving(*flags, f"--batching_parameters_file={parameters}") as server:
        client = stubs(f"localhost:{server.port}")
        heavy = request()
        heavy.inputs["text"].CopyFrom(tf.make_tensor_proto(["a b c d"] * 20_000))
        calls = [client.prediction.Predict.future(heavy, timeout=120) for _ in range(12)]
        codes = [call.code() for call in calls]
        assert set(codes) == {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}
        assert client.prediction.Predict(request(), timeout=120).model_spec.version.value == 1


def test_batching_parameters_without_batching_are_refused(base, tmp_path):
    (tmp_path / "batching.config").write_text("")
    flags = [f"--model_base_path={base}", f"--batching_parameters_file={tmp_path}/batching.config"]
    with pytest.raises(StatusError, match="without setting --enable_batching"), serving(*flags):
        pass
