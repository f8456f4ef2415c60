"""Short requests beside expensive ones, and expensive ones whose clients have gone."""

import contextlib
import gc
import http.client
import json
import os
import sys
import threading
import time
import weakref
from functools import partial
from types import SimpleNamespace

import grpc
import numpy as np
import pytest

from serving.api._image_files import image_file
from serving.loaded import saved_model
from serving.loaded._onnx_model import OnnxModel
from serving.loaded._status import Code, StatusError
from serving.loaded.saved_model import ModelSession
from serving.server import _calls
from serving.server import _tensors as tensors
from serving.server._calls import Call, Metrics, Task, Workers
from serving.server._settings import METRICS, Batching
from tests.attack.conftest import tensor_request
from tests.serving.conftest import add_version, call_of, in_flight, serving
from tests.serving.test_rest import ask
from tests.serving.test_versions import eventually, request

WORDS, LONG = b"word " * 600, b"word " * 15_000  # many to search, or long to read


@pytest.fixture
def held(base, monkeypatch):
    """Starts a server whose runs of `which` calls wait for an event; gives it and these calls."""
    gate, calls = threading.Event(), []
    with contextlib.ExitStack() as stack:

        def start(which, *flags):
            server = stack.enter_context(serving(*flags, base=base, rest=True))
            model = server.models._models["upper"].versions[1].model
            run = model.run

            def wait(name, inputs, call):
                if which(call):
                    calls.append(call)
                    gate.wait(60)
                return run(name, inputs, call)

            monkeypatch.setattr(model, "run", wait)
            return server, gate, calls

        yield start
        gate.set()


def is_expensive(call):
    return call.is_expensive


@pytest.mark.parametrize(("text", "flags"), [(WORDS, []), (LONG, ["--enable_batching"])])
def test_short_requests_do_not_wait_for_64_heavy_ones(stubs, held, text, flags):
    server, gate, calls = held(is_expensive, *flags)
    heavy, short = (stubs(f"localhost:{server.port}").prediction for _ in range(2))
    made = tensor_request(dims=[2], string_val=[text] * 2)
    waiting = [heavy.Predict.future(made, timeout=60) for _ in range(64)]
    eventually(lambda: calls and in_flight(server.rest_port) == 64)
    for _ in range(3):
        answer = short.Predict(request(), timeout=60)
        assert answer.outputs["translation"].string_val[0] == b"ONE"
        body = {"instances": ["one"]}
        assert ask(server.rest_port, "/v1/models/upper:predict", body)[0] == 200
    assert not any(call.done() for call in waiting)
    gate.set()
    assert {call.code() for call in waiting} == {grpc.StatusCode.OK}
    _, metrics = ask(server.rest_port, METRICS)
    assert ':request_count{model_name="upper",status="OK"} 70.0' in metrics  # each once


def test_heavy_requests_that_were_left_are_not_waited_for(held):
    server, gate, calls = held(is_expensive)
    connection = http.client.HTTPConnection("127.0.0.1", server.rest_port)
    body = json.dumps({"instances": [WORDS.decode()]})
    connection.request("POST", "/v1/models/upper:predict", body)
    eventually(lambda: len(calls) == 1)
    assert calls[0].seconds_left() > 1
    connection.close()
    eventually(lambda: not calls[0].seconds_left())
    gate.set()
    eventually(lambda: in_flight(server.rest_port) == 0)


def test_a_server_runs_one_request_more_than_it_has_cores(stubs, held, monkeypatch):
    monkeypatch.setattr(_calls, "_PATIENCE_SECONDS", 600)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    server, gate, calls = held(lambda call: True)
    stub = stubs(f"localhost:{server.port}").prediction
    long = tensor_request(dims=[1], string_val=[WORDS])
    waiting = [stub.Predict.future(each, timeout=60) for each in (long, *[request()] * 6)]
    eventually(lambda: len(calls) == 4 and in_flight(server.rest_port) == 7)
    gate.set()
    assert {call.code() for call in waiting} == {grpc.StatusCode.OK}


# Workers


@pytest.fixture
def workers(loop):
    """Makes workers; calls may wait for its `gate`."""
    gate = threading.Event()

    def make(slots=1, **batching):
        made = Workers(slots, 1000, Metrics(), Batching(**batching))
        made.gate = gate
        return made

    yield make
    gate.set()


@pytest.fixture
def begin(submit):
    """Submits a call that runs `work`; returns its future response, which is the result."""

    def begin(made, client, work, cost=1):
        task = Task("k", lambda *_: work(), {}, lambda result: result)
        return submit(made, call_of(task, cost, client))

    return begin


@pytest.fixture
def lasting(begin):
    """Begins calls that wait for the workers' gate; returns their futures."""
    return lambda made, count, cost=1: [
        begin(made, "a", lambda: made.gate.wait(60), cost) for _ in range(count)
    ]


def test_clients_are_charged_for_the_time_that_their_calls_took(workers, begin, monkeypatch):
    """Each of "dear" takes 30 times as long as one of "cheap", and no estimate says so."""
    made, done, now = workers(), [], [0.0]
    monkeypatch.setattr(_calls, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def work(client, seconds):
        made.gate.wait(60)
        now[0] += seconds
        done.append(client)

    futures = [begin(made, "dear", partial(work, "dear", 0.06)) for _ in range(10)]
    futures += [begin(made, "cheap", partial(work, "cheap", 0.002)) for _ in range(100)]
    eventually(lambda: made.busy() == 110)
    made.gate.set()
    for future in futures:
        future.result(60)
    last = max(number for number, client in enumerate(done) if client == "cheap")
    assert done[:last].count("dear") <= 8
    first = [number for number, client in enumerate(done) if client == "dear"][5]
    assert done[:first].count("cheap") >= 20


def test_expensive_calls_leave_a_slot_to_cheap_ones(workers, begin, lasting, monkeypatch):
    monkeypatch.setattr(_calls, "_PATIENCE_SECONDS", 600)
    made = workers(slots=2)
    futures = lasting(made, 5, 9999)
    eventually(lambda: made.busy() == 5)
    for _ in range(3):
        assert begin(made, "a", lambda: "done").result(30) == "done"
    eventually(lambda: len(made._runs) == 2)  # a run ends after its response
    made.gate.set()
    for future in futures:
        future.result(30)


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own")
def test_threads_of_expensive_runs_have_a_lower_priority(workers, begin):
    made, own = workers(), os.getpriority(os.PRIO_PROCESS, 0)
    priority = partial(os.getpriority, os.PRIO_PROCESS, 0)  # of the thread that calls it
    found = [begin(made, "a", priority, cost).result(30) for cost in (1, 9999, 1)]
    assert found == [own, min(own + 5, 19), own]


def test_a_slot_is_not_given_up_while_runs_end(workers, begin):
    made, most = workers(slots=2), []

    def work():
        most.append(len(made._runs))
        time.sleep(0.01)

    for future in [begin(made, client, work) for client in range(150)]:
        future.result(60)
    assert max(most) <= 2  # although the last ones waited for half a second and more


@pytest.mark.parametrize("cost", [1, 9999])
def test_runs_give_up_their_slots_after_a_second_without_an_end(workers, begin, lasting, cost):
    made = workers(slots=2)
    futures = lasting(made, 4, cost)
    started = time.monotonic()
    for _ in range(2):
        assert begin(made, "b", lambda: "done", cost).result(30) == "done"
    assert 0.9 < time.monotonic() - started < 20
    assert not any(future.done() for future in futures)
    made.gate.set()


@pytest.mark.parametrize("batching", [True, False])
def test_a_call_that_waits_ends_at_its_deadline(workers, submit, lasting, batching):
    made, ran = workers(), []
    lasting(made, 3, 9999)
    task = Task("k", lambda *_: ran.append(1), {"x": np.ones(1)}, dict)
    with pytest.raises(StatusError, match="Timed out waiting for notification") as caught:
        submit(made, call_of(task, 9999, "b", 0.3, batching=batching)).result(30)
    assert caught.value.code == Code.DEADLINE_EXCEEDED
    eventually(lambda: made.busy() == 3)
    made.gate.set()
    eventually(lambda: made.busy() == 0)
    assert not ran


def test_a_call_that_is_cancelled_while_it_waits_leaves_the_queue(workers, begin, lasting):
    made, message = workers(), np.zeros(9)
    running = lasting(made, 2, 9999)
    eventually(lambda: len(made._runs) == 1)
    future = begin(made, "a", partial(id, message), 9999)
    held = weakref.ref(message)
    del message
    eventually(lambda: made.busy() == 3)
    future.cancel()
    eventually(lambda: made.busy() == 2)
    del future
    gc.collect()
    assert held() is None
    assert begin(made, "b", lambda: "done").result(30) == "done"
    assert not any(each.done() for each in running)


def test_a_call_that_fails_is_an_error_of_its_client_only(workers, begin):
    made = workers()
    with pytest.raises(ZeroDivisionError):
        begin(made, "a", lambda: 1 / 0).result(30)
    assert begin(made, "b", lambda: "done").result(30) == "done"
    eventually(lambda: (made.busy(), made._runs) == (0, []))


def test_expensive_requests_of_a_batch_have_shares_too(workers, submit):
    made, done = workers(max_batch_size=100), []

    def run(inputs, call):
        made.gate.wait(60)
        return inputs

    def ask(client, rows):
        task = Task("k", run, {"x": np.ones(rows)}, lambda _: done.append(client))
        return submit(made, call_of(task, 1000, client, batching=True))

    futures = [ask("held", 40)]
    eventually(lambda: len(made._runs) == 1)
    futures += [ask(client, 40) for client in ["many"] * 30 + ["few"] * 3]
    eventually(lambda: made.busy() == 34)
    made.gate.set()
    for future in futures:
        future.result(60)
    assert done.index("few") <= 3
    assert len(done) - done[::-1].index("few") <= 9


def test_a_batch_that_nobody_waits_for_ends(workers, submit, lasting):
    made, sizes = workers(max_batch_size=2), []

    def run(inputs, call):
        sizes.append(len(inputs["x"]))
        eventually(lambda: not call.seconds_left())
        return inputs

    task = Task("k", run, {"x": np.ones(1)}, dict)
    (held,) = lasting(made, 1)
    eventually(lambda: len(made._runs) == 1)
    futures = [submit(made, call_of(task, batching=True)) for _ in range(2)]
    eventually(lambda: made.busy() == 3)
    made.gate.set()
    eventually(lambda: sizes == [2])
    for future in futures:
        future.cancel()
    eventually(lambda: made.busy() == 0)
    assert held.done()


# Models


def test_texts_are_not_tokenized_for_a_client_that_has_gone(onnx_translator, monkeypatch):
    model, call, read = OnnxModel(onnx_translator), Call(60), []
    encode = model._model._source.encode

    def counted(texts):
        read.extend(texts)
        if len(read) == 5:
            call.is_cancelled = True
            model._stopped.wait(1.0)  # several looks whether anybody waits
        return encode(texts)

    monkeypatch.setattr(model._model._source, "encode", counted)
    with pytest.raises(StatusError) as caught:
        model.run("translate", {"text": np.array([b"a"] * 50, object)}, call)
    assert (caught.value.code, len(read)) == (Code.DEADLINE_EXCEEDED, 5)
    model.close()


@pytest.fixture
def session(saved, tmp_path):
    """A SavedModel that says that it is an export of this project."""
    version = add_version(saved / "upper", tmp_path / "own", 1)
    (version / "assets.extra").mkdir()
    (version / "assets.extra" / "manifest.json").write_text('{"settings": {}}')
    with ModelSession(version) as session:
        yield session


def heavy():
    call = Call(60)
    call.cost = 1000
    return call


def test_a_heavy_run_is_in_parts_answers_as_one_and_ends_between_parts(session, monkeypatch):
    texts = np.array([b"a " * (n % 5) for n in range(150)], object)
    for name in ("translate", "nbest", "align"):
        parts, whole = (session.run(name, {"text": texts}, call) for call in (heavy(), Call(9)))
        for alias, array in whole.items():
            np.testing.assert_array_equal(parts[alias], array)
    call, rows, run = heavy(), [], session._run

    def counted(name, inputs, *more):
        rows.append(len(inputs["text"]))
        answer = run(name, inputs, *more)
        call.is_cancelled = True
        return answer

    monkeypatch.setattr(session, "_run", counted)
    with pytest.raises(StatusError):
        session.run("translate", {"text": texts}, call)
    assert rows == [64, 64]  # the second is refused


def test_a_heavy_run_in_parts_takes_the_thread_of_its_caller(session, saved, monkeypatch):
    pools, options = [], saved_model.config_pb2.RunOptions

    def recorded(**settings):
        pools.append(settings["inter_op_thread_pool"])
        return options(**settings)

    monkeypatch.setattr(saved_model.config_pb2, "RunOptions", recorded)
    with ModelSession(saved / "upper") as other:  # of another project: all rows at once
        for model in (session, other):
            for call in (heavy(), Call(9)):
                model.run("translate", {"text": np.array([b"a"], object)}, call)
    assert pools == [-1, 0, 1, 0]


def test_the_cost_of_a_request_is_its_texts_values_and_pixels():
    texts = np.array([b"abc", b"", b"d" * 100], object)
    assert tensors.cost({"text": texts}) == 32 + 32 + 100  # each text takes a search
    assert tensors.cost({"time": np.zeros((2, 7)), "pulse": np.zeros((2, 7))}) == 28
    small, large = (image_file(np.zeros((side, side), "uint8")) for side in (30, 3000))
    small, large = (tensors.cost({"image_bytes": np.array([x], object)}) for x in (small, large))
    assert 128 <= small < 256 < large
