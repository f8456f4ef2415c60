"""The server as a process, and its ports: TLS, UNIX socket, health, signals, faults."""

import concurrent.futures
import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import grpc
import psutil
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2, health_pb2_grpc

from serving.client import (
    ServerUnavailableError,
    ServingError,
    Tls,
    Translation,
    Translator,
)
from serving.export.version import export
from serving.savedmodel.session import ModelSession
from serving.server.__main__ import main
from tests.serving.conftest import (
    add_version,
    free_port,
    in_flight,
    serving,
    ssl_config,
)
from tests.serving.test_versions import eventually, request
from training.runs.run import load_run

RUN = Path(__file__).parents[1] / "fixtures" / "old_run" / "run"


class Process:
    """The command, with the translator on a port of its own."""

    def __init__(self, base, log, port=None, *flags):
        self.port, self.rest_port = port or free_port(), free_port()
        self._log = log
        command = [sys.executable, "-m", "serving.server", f"--port={self.port}"]
        command += ["--max_request_rows=1000000", f"--rest_api_port={self.rest_port}"]
        command += [f"--model_name={base.name}", f"--model_base_path={base}", *flags]
        with log.open("a") as file:
            self.process = subprocess.Popen(command, stderr=file)

    def log(self):
        return self._log.read_text()

    def stop(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def process(base, tmp_path):
    """Starts the command; stops what was started."""
    started = []

    def start(port=None, *flags, base=base):
        started.append(Process(base, tmp_path / "server.log", port, *flags))
        return started[-1]

    yield start
    for each in started:
        each.stop()


def test_the_command_serves_on_loopback_and_ends_its_requests_on_sigterm(process, stubs):
    server = process()
    with Translator(f"localhost:{server.port}", "upper") as translator:
        translator.wait_ready(180)
        assert translator.translate(["one"])[0].text == "ONE"
    listening = subprocess.run(
        ["cat", "/proc/net/tcp", "/proc/net/tcp6"], capture_output=True, text=True
    ).stdout
    addresses = set(re.findall(rf": ([0-9A-F]+):{server.port:04X} [0-9A-F]+:0000 0A", listening))
    assert addresses
    assert addresses <= {"0100007F", "0000000000000000FFFF00000100007F"}  # IPv4, or mapped to IPv6

    client = stubs(f"localhost:{server.port}")
    made = request()
    made.inputs["text"].CopyFrom(tf.make_tensor_proto(["a b c d"] * 300_000))
    calls = []

    def under_way():  # a request may have ended before it is seen
        if not calls or calls[-1].done():
            calls.append(client.prediction.Predict.future(made, timeout=120))
        return in_flight(server.rest_port) == 1

    eventually(under_way)
    call = calls[-1]
    server.process.send_signal(signal.SIGTERM)
    assert len(call.result().outputs["translation"].string_val) == 300_000
    assert server.process.wait(timeout=60) == 0


def test_a_second_signal_ends_what_never_ends(process, endless, tmp_path, stubs):
    base = add_version(endless, tmp_path / "endless", 1).parent
    server = process(None, "--shutdown_grace_seconds=600", base=base)
    with Translator(f"localhost:{server.port}", "endless") as translator:
        translator.wait_ready(180)
    client = stubs(f"localhost:{server.port}")
    call = client.prediction.Predict.future(request("endless", "count"))
    eventually(lambda: in_flight(server.rest_port) == 1)
    server.process.send_signal(signal.SIGTERM)
    time.sleep(1.5)
    assert server.process.poll() is None
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(timeout=60) == -signal.SIGTERM
    assert call.code() == grpc.StatusCode.UNAVAILABLE


@pytest.mark.slow  # three starts of a process
def test_a_server_that_is_killed_and_started_again_loses_no_request(process):
    # A server takes longer to start than a client's four retries.
    server = process()
    target = f"localhost:{server.port}"
    texts = [[f"text {thread} {n}" for n in range(40)] for thread in range(4)]

    def send(batch):
        translations = []
        with Translator(target, "upper", timeout=180) as translator:
            while len(translations) < len(batch):
                try:
                    translations += translator.translate([batch[len(translations)]])
                except ServingError:
                    translator.wait_ready(180)
        return translations

    with Translator(target, "upper") as translator:
        translator.wait_ready(180)
    killed = threading.Event()

    def kill():
        server.stop()
        killed.set()
        process(server.port)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = [pool.submit(send, batch) for batch in texts]
        time.sleep(0.02)
        kill()
        received = [result.result(200) for result in results]
    assert killed.is_set()
    assert received == [[Translation(text.upper(), -1.5) for text in batch] for batch in texts]


@pytest.fixture
def no_handlers(monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: None)


def test_a_start_that_fails_is_one_line(capsys, base, tmp_path, certificates, no_handlers):
    """Before a model is loaded: that takes seconds, and the model is none."""
    (tmp_path / "models.config").write_text("nonsense")
    key = f"server_key: {json.dumps((certificates / 'ca.key').read_text())}"
    (tmp_path / "other-key").write_text(
        f"{key} server_cert: {json.dumps((certificates / 'server.pem').read_text())}"
    )
    (tmp_path / "no-certificate").write_text(key)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    path = f"--model_base_path={tmp_path / 'none'}"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        wrong = [
            [f"--model_config_file={tmp_path / 'none'}"],
            [f"--model_config_file={tmp_path / 'models.config'}"],
            [path, f"--port={port}"],
            [path, "--port=0", f"--rest_api_port={port}"],
            [path, "--host=203.0.113.7"],
            [path, "--ssl_config_file=/no/such/file"],
            *([path, f"--ssl_config_file={tmp_path / n}"] for n in ("other-key", "no-certificate")),
            *([path, f"--ssl_config_file={tmp_path / n}"] for n in ("binary", "")),
            [path, "--batching_parameters_file=/none"],
            [path, "--enable_batching", f"--batching_parameters_file={tmp_path / 'models.config'}"],
            [path, "--port=5", "--rest_api_port=5"],
        ]
        for flags in wrong:
            assert main(flags) == 1
            out, err = capsys.readouterr()
            assert err.startswith("error: Failed to start server. Error: ")
            assert (out, err.count("\n"), len(err) < 500) == ("", 1, True), err


@pytest.mark.parametrize("moment", ["serving.api.printing", "uvicorn.config"])
def test_an_interruption_of_the_imports_is_one_line(tmp_path, moment):
    command = [sys.executable, "-X", "importtime", "-m", "serving.server"]
    command.append(f"--model_base_path={tmp_path / 'none'}")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if line.split()[-1] == moment:
                process.send_signal(signal.SIGINT)
                break
        lines = [line for line in process.stderr if not line.startswith("import time:")]
        assert (process.wait(60), lines) == (130, ["Interrupted.\n"])


def test_a_start_waits_for_the_first_version(saved, tmp_path):
    base = tmp_path / "late"
    threading.Timer(0.3, add_version, (saved / "upper", base, 1)).start()
    with (
        serving(f"--model_base_path={base}", "--model_name=upper") as server,
        Translator(f"localhost:{server.port}", "upper") as translator,
    ):
        assert translator.translate(["one"])[0].text == "ONE"


def test_health_is_served(shared_server, stubs):
    stub = health_pb2_grpc.HealthStub(stubs(f"localhost:{shared_server.port}").channel)
    for name in ("", "tensorflow.serving.PredictionService"):
        answer = stub.Check(health_pb2.HealthCheckRequest(service=name))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


# TLS


@pytest.fixture
def tls(base, tmp_path, certificates):
    """Starts a server with TLS, which may ask for the client's certificate; gives its target."""

    @contextlib.contextmanager
    def start(verify=False):
        path = ssl_config(tmp_path / "ssl.config", certificates, verify)
        flags = [f"--model_base_path={base}", "--model_name=upper", f"--ssl_config_file={path}"]
        with serving(*flags) as server:
            yield f"localhost:{server.port}"

    return start


def translated(target, tls):
    with Translator(target, "upper", tls=tls, retries=0, timeout=30) as translator:
        return translator.translate(["one"])[0].text


def test_tls_encrypts_and_a_wrong_certificate_is_named(tls, certificates):
    ca, wrong = certificates / "ca.pem", "check the certificates"
    with tls() as target:
        for good in (Tls(ca), Tls(ca, server_name="translator.example")):
            assert translated(target, good) == "ONE"
        bad = (Tls(certificates / "stranger.pem"), wrong), (True, wrong), (False, "expects TLS")
        for other, message in bad:
            with pytest.raises(ServerUnavailableError, match=message):
                translated(target, other)
        assert translated(target, Tls(ca)) == "ONE"


def test_mutual_tls_asks_for_the_clients_certificate(tls, certificates):
    ca, stranger = certificates / "ca.pem", certificates / "stranger"
    with tls(verify=True) as target:
        for wrong in (Tls(ca), Tls(ca, stranger.with_suffix(".pem"), stranger.with_suffix(".key"))):
            with pytest.raises(ServerUnavailableError):
                translated(target, wrong)
        own = Tls(ca, certificates / "client.pem", certificates / "client.key")
        assert translated(target, own) == "ONE"


# Faults


@pytest.mark.slow  # it exports a SavedModel
def test_a_request_of_32_clients_costs_at_most_1_3_bare_calls_of_the_session(process, tmp_path):
    """Processor time: that of the wall depends on what else the machine does."""
    base = export([load_run(RUN)], tmp_path / "translator", max_source_length=60).parent
    texts = [f"She is eating {n} green apples." for n in range(640)]
    with ModelSession(base / "1") as session:
        for text in texts[:60]:
            session.run("translate", {"text": [text]})
        began = time.process_time()
        for text in texts[60:]:
            session.run("translate", {"text": [text]})
        bare = (time.process_time() - began) / len(texts[60:])
    server = process(base=base)
    times = psutil.Process(server.process.pid).cpu_times

    def send(part):
        with Translator(f"localhost:{server.port}", "translator", timeout=120) as translator:
            for text in part:
                translator.translate([text])

    with Translator(f"localhost:{server.port}", "translator") as translator:
        translator.wait_ready(300)
    send(texts[:60])
    began = sum(times()[:2])
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        list(pool.map(send, [texts[n::32] for n in range(32)]))
    served = (sum(times()[:2]) - began) / len(texts)
    assert served <= 1.3 * bare, (served, bare)
