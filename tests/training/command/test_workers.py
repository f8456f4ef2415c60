"""Which of several processes this one is, and how they wait for one another."""

import json
import re
import socket
import threading

import pytest

from training.command._workers import Worker
from training.command.errors import UserError

NAMES = (
    *("JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_COORDINATOR_ADDRESS", "JAX_COORDINATOR_PORT"),
    "TF_CONFIG",
)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def tf_config(kind="worker", index=0, **cluster):
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


PAIR = ["a:1", "b:2"]
NO_ADDRESSES = ["a", 3, "a:0", "a:65536", ":1", "http://a:1", "a:１"]


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_without_variables_a_process_is_alone(backend):
    assert Worker.here(backend) == Worker(0, 1)


@pytest.mark.parametrize(
    ("config", "number", "count"),
    [
        ("{}", 0, 1),
        (tf_config(worker=PAIR, index=1), 1, 2),
        (tf_config("chief", chief=["c:3"], worker=PAIR), 0, 3),
        (tf_config(chief=["c:3"], worker=PAIR, index=1), 2, 3),
        (tf_config(worker=PAIR, index=1)[:-1] + ', "environment": "cloud"}', 1, 2),  # of a TFJob
    ],
)
def test_processes_of_tensorflow_are_counted(monkeypatch, config, number, count):
    monkeypatch.setenv("TF_CONFIG", config)
    worker = Worker.here("tensorflow")
    assert (worker.number, worker.count) == (number, count)


def set_jax(monkeypatch, count="2", number="0", address="a:1", port="1"):
    for name, value in zip(NAMES, (count, number, address, port), strict=False):
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("address", ["a:1", "a", "[::1]:1", "a-b.c_d.svc:1"])
def test_processes_of_jax_are_counted(monkeypatch, address):
    set_jax(monkeypatch, "3", "2", address)  # the port is Kubeflow's; used if the address has none
    expected = address if ":" in address else f"{address}:1"
    assert Worker.here("jax") == Worker(2, 3, (expected,))


@pytest.mark.parametrize("address", ["", "a", ":1", "a:0", "a:65536", "a:b", "http://a:1", "a:1/b"])
def test_an_address_of_jax_that_cannot_be_read_is_one_line(monkeypatch, address):
    set_jax(monkeypatch, address=address, port="")
    expected = f"JAX_COORDINATOR_ADDRESS needs HOST:PORT, but it is {address!r}"
    with pytest.raises(UserError, match=f"^{re.escape(expected)}$"):
        Worker.here("jax")


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ("{", "Expecting property name"),
        ("[1]", "it is no JSON object"),
        ('{"cluster": ["a:1", "b:2"]}', "cluster is no JSON object"),
        (json.dumps({"cluster": {"worker": PAIR}}), "task is missing"),
        (json.dumps({"cluster": {"worker": PAIR}, "task": "worker"}), "task is missing"),
        (tf_config(worker=PAIR, index=2), "the cluster has no worker 2"),
        (tf_config(worker=PAIR, index=-1), "the cluster has no worker -1"),
        (tf_config(worker=PAIR, index="0"), "index must be a whole number. It is '0'"),
        (tf_config(worker=PAIR, index=0.0), "index must be a whole number. It is 0.0"),
        (tf_config(worker=PAIR, index=True), "index must be a whole number. It is True"),
        (tf_config("chief", worker=PAIR), "the cluster has no chief 0"),
        (tf_config(["worker"], worker=PAIR), "the cluster has no ['worker'] 0"),
        (tf_config(worker=PAIR, ps=["p:1"]), "the cluster has ps; only chief and worker train"),
        (tf_config("chief", chief=PAIR), "there is more than one chief"),
        (tf_config(worker=["a:1", "a:1"]), "a:1 is the address of two processes"),
        (tf_config(chief=["a:1"], worker=PAIR), "a:1 is the address of two processes"),
        *(
            (tf_config(worker=each), "worker needs a list of addresses, HOST:PORT")
            for each in (3, "a:1", {"0": "a:1"}, *([wrong, "b:2"] for wrong in NO_ADDRESSES))
        ),
    ],
)
def test_a_broken_tf_config_is_one_line(monkeypatch, config, reason):
    monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(UserError, match=rf"^Cannot read TF_CONFIG: .*{re.escape(reason)}") as error:
        Worker.here("tensorflow")
    assert '"task": {"type": "worker", "index": 0}' in str(error.value)


@pytest.mark.parametrize(
    ("backend", "count", "number", "error"),
    [
        ("jax", "0", "0", r"JAX_PROCESS_ID must be from 0 to -1, .*"),
        ("jax", "two", "0", r"JAX_NUM_PROCESSES must be a whole number\. It is 'two'"),
        ("jax", "3", "3", r"JAX_PROCESS_ID must be from 0 to 2, .* It is 3"),
        ("jax", "3", "-1", r"JAX_PROCESS_ID must be a whole number\. It is '-1'"),
        ("tensorflow", "2", "1", r"JAX_NUM_PROCESSES is set, but the backend is TensorFlow\. .*"),
        ("torch", "2", "1", r"Several processes train on TensorFlow or JAX, but .* torch\. .*"),
    ],
)
def test_variables_that_do_not_fit_are_one_line(monkeypatch, backend, count, number, error):
    set_jax(monkeypatch, count, number)
    with pytest.raises(UserError, match=f"^{error}$"):
        Worker.here(backend)


@pytest.fixture
def addresses():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return (f"127.0.0.1:{port}", "127.0.0.1:1", "127.0.0.1:2")


def gathered(addresses, numbers, seconds):
    """What each of the started processes is told: None once all are there."""
    found = {}

    def gather(number):
        try:
            found[number] = Worker(number, 3, addresses).gather(seconds)
        except UserError as error:
            found[number] = str(error)

    threads = [threading.Thread(target=gather, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_processes_wait_until_all_have_started(addresses):
    assert gathered(addresses, (0, 1, 2), 30) == {0: None, 1: None, 2: None}
    assert gathered(addresses, (0, 1, 2), 30) == {0: None, 1: None, 2: None}  # the port is free


def test_something_else_that_calls_the_port_is_no_process(addresses):
    host, port = addresses[0].split(":")
    done = threading.Event()

    def probe():
        while not done.is_set():
            try:
                with socket.create_connection((host, int(port)), timeout=1) as call:
                    call.sendall(b"GET / HTTP/1.1\r\n\r\n")
                    return
            except OSError:
                done.wait(0.01)

    thread = threading.Thread(target=probe)
    thread.start()
    found = gathered(addresses, (0, 1), 0.5)
    done.set()
    thread.join()
    assert "Missing: 2 (127.0.0.1:2)" in found[0]


def test_a_process_that_never_starts_is_one_line(addresses):
    found = gathered(addresses, (0, 1), 0.3)
    start = "Not all processes of TF_CONFIG have started. Missing: "
    assert found == {0: f"{start}2 (127.0.0.1:2)", 1: f"{start}0 ({addresses[0]})"}
    assert gathered(addresses, (1,), 0.3) == {1: f"{start}0 ({addresses[0]})"}
