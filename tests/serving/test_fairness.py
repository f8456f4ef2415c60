"""Short requests beside heavy ones, and heavy ones whose clients have gone."""

import http.client
import json
import threading
import weakref
from functools import partial

import grpc
import numpy as np
import pytest

from serving.savedmodel.session import ModelSession
from serving.savedmodel.status import Code, StatusError
from serving.server import tensors
from serving.server.calls import Batcher, Call, Metrics, _Line
from serving.server.onnx_model import OnnxModel
from serving.server.settings import METRICS, Batching
from tests.attack.conftest import tensor_request
from tests.serving.conftest import add_version, in_flight, serving
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

        def wait(name, inputs, outputs, call):
            if call.is_heavy:
                calls.append(call)
                gate.wait(60)
            return run(name, inputs, outputs, call)

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


def served(line, asked, more=None):
    """The clients in the order in which one thread runs what waits; `asked` has their costs."""
    gate, order, futures = threading.Event(), [], []

    def work(client):
        order.append(client)
        if more:
            more(len(order), submit)

    def submit(client, cost):
        futures.append(line.submit(client, cost, lambda: work(client)))

    first = line.submit("first", 0, lambda: gate.wait(60))
    eventually(first.running)
    for client, cost in asked:
        submit(client, cost)
    gate.set()
    for future in futures:  # grows meanwhile
        future.result(60)
    return order


def test_clients_that_wait_have_equal_shares_by_cost():
    asked = [("a", 1)] * 64 + [("b", 4)] * 8 + [("c", 1)] * 3
    order = served(_Line(1, 1), asked)
    assert order.index("c") < 3
    costs = {"a": 1, "b": 4}
    had = dict.fromkeys("abc", 0)
    for client in order[: order.index("b") + 30]:
        had[client] += costs.get(client, 1)
        assert abs(had["a"] - had["b"]) <= 4 + 1
    assert sorted(order) == sorted(client for client, _ in asked)


def test_a_dear_request_has_its_turn_among_new_clients_without_end():
    def more(run, submit):
        if run < 500:
            submit(f"new {run}", 1)

    order = served(_Line(1, 1), [("dear", 50), ("x", 1), ("y", 1)], more)
    assert order.index("dear") <= 50 * 3
    assert len(order) == 502


def test_runs_that_last_do_not_stop_the_others():
    line, gate = _Line(8, 1), threading.Event()
    lasting = [line.submit("a", 1, lambda: gate.wait(60)) for _ in range(3)]
    assert line.submit("b", 1, lambda: "done").result(30) == "done"
    assert not any(future.done() for future in lasting)
    gate.set()


def test_a_request_that_is_cancelled_while_it_waits_leaves_its_place_in_the_queue():
    line, gate = _Line(2, 1), threading.Event()
    running = line.submit("a", 1, lambda: gate.wait(60))
    eventually(running.running)
    message = np.zeros(9)
    future = line.submit("a", 1, partial(id, message))
    held = weakref.ref(message)
    del message
    future.cancel()
    assert held() is None
    assert line.submit("b", 1, lambda: "done").result(30) == "done"
    assert not running.done()
    gate.set()


def test_a_batch_that_nobody_waits_for_ends():
    batcher, gate = Batcher(Batching(num_batch_threads=1, max_batch_size=2), Metrics()), []
    running, release = threading.Event(), threading.Event()

    def run(inputs, outputs, call):
        gate.append(len(inputs["x"]))
        running.set()
        release.wait(60)
        return inputs

    def asked(call):
        with pytest.raises(StatusError):
            batcher.run("k", run, {"x": np.ones(1)}, call)

    first, others = Call(60), [Call(60), Call(60)]
    threads = [threading.Thread(target=asked, args=(call,)) for call in others]
    filling = threading.Thread(
        target=batcher.run, args=("k", run, {"x": np.ones(2)}, first), daemon=True
    )
    filling.start()
    running.wait(60)
    for thread in threads:
        thread.start()
    for call in others:
        call.cancelled = True
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert gate == [2]
    release.set()


def test_texts_are_not_tokenized_for_a_client_that_has_gone(onnx_translator, monkeypatch):
    model, call, read = OnnxModel(onnx_translator), Call(60), []
    encode = model._model._source.encode

    def counted(texts):
        read.extend(texts)
        if len(read) == 5:
            call.cancelled = True
            model._stopped.wait(1.0)  # several looks whether anybody waits
        return encode(texts)

    monkeypatch.setattr(model._model._source, "encode", counted)
    with pytest.raises(StatusError) as caught:
        model.run("translate", {"text": np.array([b"a"] * 50, object)}, (), call)
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
    call.is_heavy = True
    return call


def test_a_heavy_run_in_parts_answers_as_one(session):
    texts = np.array([b"a " * (n % 5) for n in range(150)], object)
    for name in ("translate", "nbest", "align"):
        parts, whole = (session.run(name, {"text": texts}, (), call) for call in (heavy(), Call(9)))
        for alias, array in whole.items():
            np.testing.assert_array_equal(parts[alias], array)


def test_a_heavy_run_ends_between_parts(session, monkeypatch):
    call, rows, run = heavy(), [], session._run

    def counted(name, inputs, *more):
        rows.append(len(inputs["text"]))
        answer = run(name, inputs, *more)
        call.cancelled = True
        return answer

    monkeypatch.setattr(session, "_run", counted)
    with pytest.raises(StatusError):
        session.run("translate", {"text": np.array([b"a"] * 300, object)}, (), call)
    assert rows == [64, 64]  # the second is refused


def test_the_cost_of_a_request_is_its_texts_values_and_images():
    texts = np.array([b"abc", b"", b"de"], object)
    assert tensors.cost({"text": texts}) == 5
    assert tensors.cost({"time": np.zeros((2, 7)), "pulse": np.zeros((2, 7))}) == 28
    image = {"image_bytes": texts}
    assert tensors.cost(image) == tensors.cost({"image_bytes": texts[::-1]})
    assert tensors.cost(image) > 2 * tensors.cost({"t": texts})
