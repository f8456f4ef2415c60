"""Short requests beside expensive ones, and expensive ones whose clients have gone."""

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

SIZES = {"of many words": b"word " * 600, "that is long to read": b"word " * 15_000}


@pytest.fixture
def held(monkeypatch):
    """Makes heavy runs of a server wait for an event; returns it and the calls that run."""
    gate, calls = threading.Event(), []

    def hold(server):
        model = server.models._models["upper"].versions[1].model
        run = model.run

        def wait(name, inputs, call):
            if call.is_expensive:
                calls.append(call)
                gate.wait(60)
            return run(name, inputs, call)

        monkeypatch.setattr(model, "run", wait)
        return gate, calls

    yield hold
    gate.set()


@pytest.mark.parametrize(
    ("size", "flags"), [("of many words", []), ("that is long to read", ["--enable_batching"])]
)
def test_short_requests_do_not_wait_for_64_heavy_ones(base, stubs, held, size, flags):
    with serving(*flags, base=base, rest=True) as server:
        gate, calls = held(server)
        heavy, short = (stubs(f"localhost:{server.port}").prediction for _ in range(2))
        made = tensor_request(dims=[2], string_val=[SIZES[size]] * 2)
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


def test_heavy_requests_that_were_left_are_not_waited_for(base, stubs, held):
    with serving(base=base, rest=True) as server:
        gate, calls = held(server)
        connection = http.client.HTTPConnection("127.0.0.1", server.rest_port)
        body = json.dumps({"instances": [SIZES["of many words"].decode()]})
        connection.request("POST", "/v1/models/upper:predict", body)
        eventually(lambda: len(calls) == 1)
        assert calls[0].seconds_left() > 1
        connection.close()
        eventually(lambda: not calls[0].seconds_left())
        gate.set()
        eventually(lambda: in_flight(server.rest_port) == 0)


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


def call_for(client, work, cost=1, seconds=60):
    """A call that runs `work`, and whose response is the result."""
    task = Task("k", lambda *_: work(), {}, lambda result: result)
    return call_of(task, cost, client, seconds)


def test_clients_are_charged_for_the_time_that_their_calls_took(workers, submit, monkeypatch):
    """Each of "dear" takes 30 times as long as one of "cheap", and no estimate says so."""
    made, done, now = workers(), [], [0.0]
    monkeypatch.setattr(_calls, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def work(client, seconds):
        made.gate.wait(60)
        now[0] += seconds
        done.append(client)

    futures = [submit(made, call_for("dear", partial(work, "dear", 0.06))) for _ in range(10)]
    futures += [submit(made, call_for("cheap", partial(work, "cheap", 0.002))) for _ in range(100)]
    eventually(lambda: made.busy() == 110)
    made.gate.set()
    for future in futures:
        future.result(60)
    last = max(number for number, client in enumerate(done) if client == "cheap")
    assert done[:last].count("dear") <= 8
    first = [number for number, client in enumerate(done) if client == "dear"][5]
    assert done[:first].count("cheap") >= 20


def test_expensive_calls_leave_a_slot_to_cheap_ones(workers, submit, monkeypatch):
    monkeypatch.setattr(_calls, "_PATIENCE_SECONDS", 600)
    made = workers(slots=2)
    lasting = [submit(made, call_for("a", lambda: made.gate.wait(60), 9999)) for _ in range(5)]
    eventually(lambda: made.busy() == 5)
    for _ in range(3):
        assert submit(made, call_for("a", lambda: "done")).result(30) == "done"
    assert len(made._runs) == 2
    made.gate.set()
    for future in lasting:
        future.result(30)


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own")
def test_threads_of_expensive_runs_have_a_lower_priority(workers, submit):
    made, own = workers(), os.getpriority(os.PRIO_PROCESS, 0)
    priority = partial(os.getpriority, os.PRIO_PROCESS, 0)  # of the thread that calls it
    before, expensive, after = (
        submit(made, call_for("a", priority, cost)).result(30) for cost in (1, 9999, 1)
    )
    assert before == after == own
    assert expensive == min(own + 5, 19)


def test_a_server_runs_one_request_more_than_it_has_cores(base, stubs, monkeypatch):
    monkeypatch.setattr(_calls, "_PATIENCE_SECONDS", 600)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    gate, running = threading.Event(), []
    with serving(base=base, rest=True) as server:
        model = server.models._models["upper"].versions[1].model
        run = model.run

        def wait(*arguments):
            running.append(1)
            gate.wait(60)
            return run(*arguments)

        monkeypatch.setattr(model, "run", wait)
        stub = stubs(f"localhost:{server.port}").prediction
        long = tensor_request(dims=[1], string_val=[SIZES["of many words"]])
        waiting = [stub.Predict.future(each, timeout=60) for each in (long, *[request()] * 6)]
        eventually(lambda: len(running) == 4 and in_flight(server.rest_port) == 7)
        assert len(running) == 4
        gate.set()
        assert {call.code() for call in waiting} == {grpc.StatusCode.OK}


def test_a_run_that_lasts_gives_up_its_slot_only_after_a_second_without_an_end(workers, submit):
    made, most = workers(slots=2), []

    def work():
        most.append(len(made._runs))
        time.sleep(0.01)

    calls = [submit(made, call_for(client, work)) for client in range(150)]
    for future in calls:
        future.result(60)
    assert max(most) <= 2  # although the last ones waited for half a second and more
    lasting = [submit(made, call_for("a", lambda: made.gate.wait(60))) for _ in range(4)]
    started = time.monotonic()
    assert submit(made, call_for("b", lambda: "done")).result(30) == "done"
    assert 0.9 < time.monotonic() - started < 10
    started = time.monotonic()
    assert submit(made, call_for("b", lambda: "done")).result(30) == "done"
    assert not any(future.done() for future in lasting)
    made.gate.set()


def test_expensive_calls_that_last_give_up_their_slots_too(workers, submit):
    made = workers(slots=2)
    lasting = [submit(made, call_for("a", lambda: made.gate.wait(60), 9999)) for _ in range(3)]
    assert submit(made, call_for("b", lambda: "done", 9999)).result(30) == "done"
    assert not any(future.done() for future in lasting)
    made.gate.set()


def test_a_call_that_waits_ends_at_its_deadline(workers, submit):
    made, ran = workers(), []
    for _ in range(3):
        submit(made, call_for("a", lambda: made.gate.wait(60), 9999))
    started = time.monotonic()
    with pytest.raises(StatusError) as caught:
        submit(made, call_for("b", lambda: ran.append(1), 9999, seconds=0.3)).result(30)
    assert caught.value.code == Code.DEADLINE_EXCEEDED
    assert 0.2 < time.monotonic() - started < 5
    eventually(lambda: made.busy() == 3)
    made.gate.set()
    eventually(lambda: made.busy() == 0)
    assert not ran


def test_a_call_that_is_cancelled_while_it_waits_leaves_the_queue(workers, submit):
    made, message = workers(), np.zeros(9)
    running = [submit(made, call_for("a", lambda: made.gate.wait(60), 9999)) for _ in range(2)]
    eventually(lambda: len(made._runs) == 1)
    future = submit(made, call_for("a", partial(id, message), 9999))
    held = weakref.ref(message)
    del message
    eventually(lambda: made.busy() == 3)
    future.cancel()
    eventually(lambda: made.busy() == 2)
    del future
    gc.collect()
    assert held() is None
    assert submit(made, call_for("b", lambda: "done")).result(30) == "done"
    assert not any(each.done() for each in running)


def test_a_call_that_fails_is_an_error_of_its_client_only(workers, submit):
    made = workers()
    with pytest.raises(ZeroDivisionError):
        submit(made, call_for("a", lambda: 1 / 0)).result(30)
    assert submit(made, call_for("b", lambda: "done")).result(30) == "done"
    assert (made.busy(), made._runs) == (0, [])


def test_expensive_requests_of_a_batch_have_shares_too(workers, submit):
    made, done = workers(max_batch_size=100), []

    def run(inputs, call):
        made.gate.wait(60)
        return inputs

    def ask(client, rows):
        write = lambda _: done.append(client)  # noqa: E731
        task = Task("k", run, {"x": np.ones(rows)}, write)
        return submit(made, call_of(task, 1000, client, batching=True))

    futures = [ask("held", 40)]
    eventually(lambda: len(made._runs) == 1)
    futures += [ask("many", 40) for _ in range(30)]
    futures += [ask("few", 40) for _ in range(3)]
    eventually(lambda: made.busy() == 34)
    made.gate.set()
    for future in futures:
        future.result(60)
    assert done.index("few") <= 3
    assert len(done) - done[::-1].index("few") <= 9


def test_a_batch_that_nobody_waits_for_ends(workers, submit):
    made, sizes = workers(max_batch_size=2), []

    def run(inputs, call):
        sizes.append(len(inputs["x"]))
        eventually(lambda: not call.seconds_left())
        return inputs

    task = Task("k", run, {"x": np.ones(1)}, dict)
    made.gate.clear()
    held = submit(made, call_for("a", lambda: made.gate.wait(60)))
    eventually(lambda: len(made._runs) == 1)
    futures = [submit(made, call_of(task, batching=True)) for _ in range(2)]
    eventually(lambda: made.busy() == 3)
    made.gate.set()
    eventually(lambda: sizes == [2])
    for future in futures:
        future.cancel()
    eventually(lambda: made.busy() == 0)
    assert held.done()


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
    assert caught.value.code == Code.DEADLINE_EXCEEDED
    assert len(read) == 5
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


def test_a_heavy_run_in_parts_answers_as_one(session):
    texts = np.array([b"a " * (n % 5) for n in range(150)], object)
    for name in ("translate", "nbest", "align"):
        parts, whole = (session.run(name, {"text": texts}, call) for call in (heavy(), Call(9)))
        for alias, array in whole.items():
            np.testing.assert_array_equal(parts[alias], array)


def test_a_heavy_run_ends_between_parts(session, monkeypatch):
    call, rows, run = heavy(), [], session._run

    def counted(name, inputs, *more):
        rows.append(len(inputs["text"]))
        answer = run(name, inputs, *more)
        call.is_cancelled = True
        return answer

    monkeypatch.setattr(session, "_run", counted)
    with pytest.raises(StatusError):
        session.run("translate", {"text": np.array([b"a"] * 300, object)}, call)
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
