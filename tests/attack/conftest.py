"""Servers to attack, and what attacks are made of."""

import contextlib
import http.client
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from serving.client import Translator
from tests.serving.conftest import (  # noqa: F401  (fixtures)
    add_version,
    base,
    certificates,
    labelled_models,
    saved,
    serving,
    stubs,
    write_monitoring,
)
from tests.serving.test_rest import free_port

FLOAT, STRING = 1, 7

_spec = importlib.util.spec_from_file_location(
    "hostile", Path(__file__).parents[2] / "benchmarks" / "hostile.py"
)
hostile = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(hostile)


def tensor_request(model="upper", dtype=STRING, dims=(), signature="", **fields):
    """A PredictRequest with one tensor, which need not make sense."""
    made = predict_pb2.PredictRequest()
    made.model_spec.name = model
    made.model_spec.signature_name = signature
    proto = made.inputs["text"]
    proto.dtype = dtype
    for size in dims:
        proto.tensor_shape.dim.add(size=size)
    for name, values in fields.items():
        if isinstance(values, bytes):
            setattr(proto, name, values)
        else:
            getattr(proto, name).extend(values)
    return made


class ServerProcess:
    """The command in a process of its own, as strangers meet it."""

    def __init__(self, *flags, log):
        self.port, self.rest_port = free_port(), free_port()
        self.log = log
        command = [sys.executable, "-m", "serving.server", f"--port={self.port}"]
        command += [f"--rest_api_port={self.rest_port}", *map(str, flags)]
        monitoring = write_monitoring(log.with_suffix(".monitoring"))
        with log.open("a") as file:
            self.process = subprocess.Popen(
                [*command, f"--monitoring_config_file={monitoring}"], stderr=file
            )

    @property
    def target(self):
        return f"127.0.0.1:{self.port}"

    def wait_ready(self, model="upper"):
        with Translator(self.target, model) as translator:
            translator.wait_ready(120)

    def megabytes(self):
        return psutil.Process(self.process.pid).memory_info().rss / 2**20

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def server_process(tmp_path):
    """Starts the command with flags; kills what was started."""
    started = []

    def start(*flags):
        started.append(ServerProcess(*flags, log=tmp_path / "server.log"))
        return started[-1]

    yield start
    for one in started:
        one.kill()


class Endless(tf.Module):
    """Counts to 2^40 in a loop of the graph: days."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def __call__(self, text):
        # As long as the text says "count": others, as the warm-up's, are answered at once.
        last = tf.where(tf.reduce_any(text == "count"), tf.constant(2**40, tf.int64), 1)
        done = tf.while_loop(lambda n: n < last, lambda n: [n + 1], [tf.constant(0, tf.int64)])
        return {"count": tf.fill(tf.shape(text), done[0])}


@pytest.fixture(scope="session")
def endless(tmp_path_factory):
    path = tmp_path_factory.mktemp("endless") / "model"
    module = Endless()
    tf.saved_model.save(module, str(path), signatures=module.__call__)
    return path


@pytest.fixture(scope="module")
def victim(saved, tmp_path_factory):  # noqa: F811
    """A server in this process, with its limits as they are, REST and metrics."""
    root = tmp_path_factory.mktemp("victim")
    config = labelled_models(saved, root)
    monitoring = write_monitoring(root / "monitoring.config")
    with serving(
        "--max_request_rows=1000",
        f"--model_config_file={config}",
        f"--rest_api_port={free_port()}",
        f"--monitoring_config_file={monitoring}",
        "--enable_grpc_healthcheck_service=true",
    ) as server:
        yield server


def ask(port, path, body=None, headers=None, method=None, timeout=60):
    """(status, text) of a request of its own connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        method = method or ("GET" if body is None else "POST")
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return response.status, response.read().decode("utf-8", "replace")
    finally:
        connection.close()


def raw(port, data, seconds=60):
    """Return the server's answer to these bytes until it closes the connection."""
    answer = b""
    with (
        contextlib.suppress(ConnectionError),
        socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection,
    ):
        connection.sendall(data)
        while part := connection.recv(65536):
            answer += part
    return answer


@contextlib.contextmanager
def within(seconds):
    """The block takes less time than this."""
    started = time.monotonic()
    yield
    took = time.monotonic() - started
    assert took < seconds, f"it took {took:.1f} s"
