"""More work than the server can do, and work that nobody waits for."""

import threading

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from serving.savedmodel.status import Code, StatusError
from serving.server.batching import BatchScheduler
from serving.server.call import Call
from serving.server.config_files import Batching
from serving.server.monitoring import Metrics
from tests.attack.conftest import add_version, ask, serving, tensor_request, within
from tests.serving.conftest import error_of
from tests.serving.test_versions import eventually, request, states

Status = grpc.StatusCode


class Held:
    """Sessions whose runs wait until they are let go; counts those that began."""

    def __init__(self, server, monkeypatch):
        self._began = []  # threads append to it at once
        self.gate = threading.Event()
        for model in server._manager._models.values():
            for version in model.versions.values():
                if version.servable:
                    session = version.servable.model.session
                    monkeypatch.setattr(session, "run", self._holding(session.run))

    @property
    def began(self):
        return len(self._began)

    def _holding(self, run):
        def held(*arguments, **options):
            self._began.append(1)
            self.gate.wait(120)
            return run(*arguments, **options)

        return held


@pytest.fixture
def hold(monkeypatch):
    held = []

    def make(server):
        held.append(Held(server, monkeypatch))
        return held[-1]

    yield make
    for one in held:
        one.gate.set()


@pytest.fixture
def server(base):
    with serving(
        "--max_request_rows=1000",
        "--max_waiting_requests=10",
        "--model_name=upper",
        f"--model_base_path={base}",
        "--enable_grpc_healthcheck_service=true",
    ) as server:
        yield server


def test_2000_rows_of_73_bytes_cost_nothing(server, stubs):
    client = stubs(f"localhost:{server.port}")
    made = tensor_request(dims=[2000], string_val=[b"a b c d e f"])
    with within(30):
        calls = [client.prediction.Predict.future(made) for _ in range(100)]
        codes = {call.code() for call in calls}
    assert codes == {Status.INVALID_ARGUMENT}
    assert client.prediction.Predict(request(), timeout=60)


def test_abandoned_requests_are_not_run(server, stubs, hold):
    held = hold(server)
    gone, stays = (stubs(f"localhost:{server.port}") for _ in range(2))
    running = [gone.prediction.Predict.future(request()) for _ in range(64)]
    eventually(lambda: held.began == 64)
    waiting = [gone.prediction.Predict.future(request()) for _ in range(10)]
    eventually(lambda: server._pools.usual.waiting == 10)
    for call in waiting:
        call.cancel()
    eventually(lambda: server._pools.usual.waiting == 0)
    good = stays.prediction.Predict.future(request(), timeout=120)
    eventually(lambda: server._pools.usual.waiting == 1)
    gone.channel.close()
    held.gate.set()
    assert good.result().model_spec.version.value == 1
    assert held.began == 65
    del running


def test_a_full_queue_answers_at_once(server, stubs, hold):
    held = hold(server)
    client = stubs(f"localhost:{server.port}")
    calls = [client.prediction.Predict.future(request(), timeout=120) for _ in range(74)]
    eventually(lambda: held.began == 64 and server._pools.usual.waiting == 10)
    with within(20):  # those before it are held for longer
        code, message = error_of(client.prediction.Predict, request(), timeout=60)
    assert (code, "overloaded" in message) == (Status.RESOURCE_EXHAUSTED, True)
    held.gate.set()
    assert {call.code() for call in calls} == {Status.OK}


def test_heavy_requests_do_not_keep_light_ones_waiting(server, stubs, hold):
    held = hold(server)
    client = stubs(f"localhost:{server.port}")
    made = tensor_request(dims=[1000], string_val=[b"a"])
    heavy = [client.prediction.Predict.future(made, timeout=120) for _ in range(40)]
    eventually(lambda: sum(call.done() for call in heavy) >= 20)
    refused = {call.code() for call in heavy if call.done()}
    assert refused == {Status.RESOURCE_EXHAUSTED}
    assert held.began <= 2
    light = [client.prediction.Predict.future(request(), timeout=120) for _ in range(30)]
    eventually(lambda: held.began >= 31)
    held.gate.set()
    assert {call.code() for call in light} == {Status.OK}


def test_status_health_and_metrics_answer_while_all_threads_are_busy(victim, stubs, hold):
    held = hold(victim)
    clients = [stubs(f"localhost:{victim.port}") for _ in range(11)]
    calls = [
        clients[number % 11].prediction.Predict.future(request(), timeout=120)
        for number in range(1100)
    ]
    eventually(lambda: sum(call.done() for call in calls) == 76)
    eventually(lambda: (held.began, victim._pools.usual.waiting) == (64, 960))
    other = stubs(f"localhost:{victim.port}")
    health = health_pb2_grpc.HealthStub(other.channel)
    with within(20):
        assert health.Check(health_pb2.HealthCheckRequest(), timeout=20).status == 1
        assert states(other) == {1: "AVAILABLE"}
        assert ask(victim.rest_port, "/v1/models/upper")[0] == 200
        status, page = ask(victim.rest_port, "/metrics")
    lines = dict(line.rsplit(" ", 1) for line in page.splitlines())
    assert status == 200
    assert int(lines[":tensorflow:serving:requests_in_flight"]) == 1024
    assert int(lines[":tensorflow:serving:requests_queued"]) == 960
    # On a busy machine a call may fail before it is the server's to refuse.
    refused = [call.code() for call in calls if call.done()].count(Status.RESOURCE_EXHAUSTED)
    rejected = int(lines[':tensorflow:serving:requests_rejected{entrypoint="GRPC"}'])
    assert 70 <= rejected <= refused <= 76
    held.gate.set()
    assert [call.code() for call in calls].count(Status.OK) == 1024


def test_streams_without_a_message_keep_nobody_waiting(victim, stubs):
    client = stubs(f"localhost:{victim.port}")
    stop = threading.Event()

    def never():
        stop.wait(120)
        return
        yield

    open_stream = client.channel.stream_unary(
        "/tensorflow.serving.PredictionService/Predict",
        request_serializer=lambda message: message,
    )
    calls = [open_stream.future(iter(()), timeout=120) for _ in range(3)]
    assert {call.code() for call in calls} == {Status.INTERNAL}
    calls = [open_stream.future(never(), timeout=120) for _ in range(50)]
    other = stubs(f"localhost:{victim.port}")
    assert other.prediction.Predict(request(), timeout=20).model_spec.version.value == 1
    stop.set()
    assert {call.code() for call in calls} == {Status.INTERNAL}


@pytest.mark.parametrize("rows", [1, 37])
def test_a_deadline_stops_a_run_in_the_session(rows, endless, tmp_path, stubs):
    """Of one text, and of so many that they run in a thread of low priority."""
    add_version(endless, tmp_path / "endless", 1)
    with serving("--model_name=endless", f"--model_base_path={tmp_path / 'endless'}") as server:
        client = stubs(f"localhost:{server.port}")
        made = tensor_request("endless", dims=[rows], string_val=[b"count"] * rows)
        call = client.prediction.Predict.future(made, timeout=3)
        eventually(lambda: server.busy == 1)
        assert call.code() == Status.DEADLINE_EXCEEDED
        eventually(lambda: server.busy == 0)
        made = tensor_request("endless", dims=[rows], string_val=[b"no"] * rows)
        assert client.prediction.Predict(made, timeout=60)


def test_a_cancelled_request_leaves_its_batch():
    import numpy as np

    ran, gate, inside = [], threading.Event(), threading.Event()

    def run(inputs, seconds):
        ran.append(inputs["x"].tolist())
        inside.set()
        gate.wait(60)
        return {"y": inputs["x"]}

    scheduler = BatchScheduler(
        Batching(max_batch_size=1, max_enqueued_batches=1, num_batch_threads=1), Metrics()
    )
    codes = []

    def send(value, call):
        try:
            scheduler.run("k", run, {"x": np.array([value])}, call)
            codes.append(Code.OK)
        except StatusError as error:
            codes.append(error.code)

    calls = [Call(120) for _ in range(3)]
    threads = [threading.Thread(target=send, args=(n, call)) for n, call in enumerate(calls)]
    threads[0].start()
    inside.wait(60)
    threads[1].start()
    eventually(lambda: scheduler.waiting == 1)
    calls[1].cancel()
    threads[1].join(60)
    assert (codes, scheduler.waiting) == ([Code.CANCELLED], 0)
    threads[2].start()
    eventually(lambda: scheduler.waiting == 1)
    gate.set()
    for thread in threads:
        thread.join(60)
    scheduler.close()
    assert (codes[1:], ran) == ([Code.OK, Code.OK], [[0], [2]])
