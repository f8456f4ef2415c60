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

from serving.client import ServerUnavailableError, Tls, Translator
from serving.export._version import export
from serving.loaded.saved_model import ModelSession
from serving.server.__main__ import main
from tests.serving.conftest import TEXT_RUN, add_version, free_port, in_flight, serving, ssl_config
from tests.serving.test_versions import eventually, request
from training.runs.run import load_run


@pytest.fixture
def start():
    """Starts the command and waits for its model; returns the process and its ports."""
    with contextlib.ExitStack() as stack:

        def start(base, *flags):
            ports = free_port(), free_port()
            command = [sys.executable, "-m", "serving.server", "--max_request_rows=1000000"]
            command += [f"--port={ports[0]}", f"--rest_api_port={ports[1]}"]
            command += [f"--model_name={base.name}", f"--model_base_path={base}", *flags]
            process = stack.enter_context(subprocess.Popen(command))
            stack.callback(process.kill)
            with Translator(f"localhost:{ports[0]}", base.name) as translator:
                translator.wait_ready(180)
            return process, *ports

        yield start


def test_the_command_serves_on_loopback_and_ends_its_requests_on_sigterm(
    start, onnx_translator, stubs
):
    """Of an ONNX export, which is there in a tenth of a SavedModel's time."""
    process, port, rest_port = start(onnx_translator.parent)
    listening = "".join(Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6"))
    addresses = set(re.findall(rf": ([0-9A-F]+):{port:04X} [0-9A-F]+:0000 0A", listening))
    assert addresses
    assert addresses <= {"0100007F", "0000000000000000FFFF00000100007F"}  # IPv4, or mapped to IPv6

    client = stubs(f"localhost:{port}")
    made = request(onnx_translator.parent.name)
    made.inputs["text"].CopyFrom(tf.make_tensor_proto(["a b c d"] * 200))
    calls = []

    def under_way():  # a request may have ended before it is seen
        if not calls or calls[-1].done():
            calls.append(client.prediction.Predict.future(made, timeout=120))
        return in_flight(rest_port) == 1

    eventually(under_way)
    call = calls[-1]
    process.send_signal(signal.SIGTERM)
    assert len(call.result().outputs["translation"].string_val) == 200
    assert process.wait(timeout=60) == 0


def test_a_second_signal_ends_what_does_not_end(start, onnx_translator, stubs):
    process, port, rest_port = start(onnx_translator.parent, "--shutdown_grace_seconds=600")
    made = request(onnx_translator.parent.name)
    made.inputs["text"].CopyFrom(tf.make_tensor_proto(["a b c d"] * 500_000))  # minutes
    call = stubs(f"localhost:{port}").prediction.Predict.future(made)
    eventually(lambda: in_flight(rest_port) == 1)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == -signal.SIGTERM
    assert call.code() == grpc.StatusCode.UNAVAILABLE


def test_a_start_that_fails_is_one_line(capsys, base, tmp_path, certificates, monkeypatch):
    """Before a model is loaded: that takes seconds, and the model is none."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    key = f"server_key: {json.dumps((certificates / 'ca.key').read_text())}"
    certificate = f"server_cert: {json.dumps((certificates / 'server.pem').read_text())}"
    texts = {"none.config": "nonsense", "other-key": f"{key} {certificate}", "no-certificate": key}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    path = f"--model_base_path={tmp_path / 'none'}"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        wrong = [
            [f"--model_config_file={tmp_path / 'none'}"],
            [f"--model_config_file={tmp_path / 'none.config'}"],
            [path, f"--port={port}"],
            [path, "--port=0", f"--rest_api_port={port}"],
            [path, "--host=203.0.113.7"],
            [path, "--ssl_config_file=/no/such/file"],
            *([path, f"--ssl_config_file={tmp_path / n}"] for n in ("other-key", "no-certificate")),
            *([path, f"--ssl_config_file={tmp_path / n}"] for n in ("binary", "")),
            [path, "--batching_parameters_file=/none"],
            [path, "--enable_batching", f"--batching_parameters_file={tmp_path / 'none.config'}"],
            [path, "--port=5", "--rest_api_port=5"],
        ]
        for flags in wrong:
            assert main(flags) == 1
            out, err = capsys.readouterr()
            assert err.startswith("error: Failed to start server. Error: ")
            assert (out, err.count("\n"), len(err) < 500) == ("", 1, True), err
            if flag := re.search(rf"(--\w*port)={port}$", flags[-1]):
                taken = f"port {port} of 127.0.0.1 is already in use. Stop the other server, or "
                assert err.endswith(f"{taken}choose another: {flag[1]}=N\n")


@pytest.mark.parametrize("moment", ["serving.api._printing", "uvicorn.config"])
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
    base = tmp_path / "upper"
    threading.Timer(0.3, add_version, (saved / "plain", base, 1)).start()
    with (
        serving(base=base) as server,
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
        with serving(f"--ssl_config_file={path}", base=base) as server:
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
        another = Tls(ca, server_name="other.example"), "its certificate has another name"
        bad = (Tls(certificates / "stranger.pem"), wrong), (True, wrong), (False, "expects TLS")
        for other, message in (*bad, another):
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
def test_a_request_of_32_clients_costs_at_most_1_3_bare_calls_of_the_session(start, tmp_path):
    """Processor time, the best of four rounds: other processes share the caches and cores."""
    base = export([load_run(TEXT_RUN)], tmp_path / "translator", max_source_length=60).parent
    texts = [f"She is eating {n} green apples." for n in range(640)]
    process, port, _ = start(base)
    times = psutil.Process(process.pid).cpu_times

    def send(part):
        with Translator(f"localhost:{port}", "translator", timeout=120) as translator:
            for text in part:
                translator.translate([text])

    def bare_time(session, texts):
        began = time.process_time()
        for text in texts:
            session.run("translate", {"text": [text]})
        return (time.process_time() - began) / len(texts)

    def served_time(texts):
        began = sum(times()[:2])
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            list(pool.map(send, [texts[n::32] for n in range(32)]))
        return (sum(times()[:2]) - began) / len(texts)

    send(texts[:60])
    with ModelSession(base / "1") as session:
        bare_time(session, texts[:60])
        rounds = [(bare_time(session, texts[n::4]), served_time(texts[n::4])) for n in range(4)]
    assert min(served / bare for bare, served in rounds) <= 1.3, rounds
