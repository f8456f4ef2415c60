"""SIGTERM has a bound, whatever runs."""

import signal
import subprocess
import sys
import textwrap
import time

import grpc
import pytest
import tensorflow as tf

from tests.serving.conftest import add_version, in_flight
from tests.serving.test_versions import eventually, request


@pytest.mark.parametrize("rows", [1, 100])
def test_sigterm_stops_runs_after_the_grace(endless, tmp_path, server_process, stubs, rows):
    base = tmp_path / "endless"
    add_version(endless, base, 1)
    server = server_process(
        "--model_name=endless", f"--model_base_path={base}", "--shutdown_grace_seconds=1"
    )
    server.wait_ready("endless")
    made = request("endless")
    made.inputs["text"].CopyFrom(tf.make_tensor_proto(["count"] * rows))
    call = stubs(server.target).prediction.Predict.future(made)
    eventually(lambda: in_flight(server.rest_port) == 1)
    assert not call.done()
    server.terminate()
    # 11 seconds, and a machine that is busy; 40 with the usual grace.
    assert server.process.wait(timeout=35) is not None
    assert call.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


def test_a_second_signal_stops_at_once(endless, tmp_path, server_process, stubs):
    base = tmp_path / "endless"
    add_version(endless, base, 1)
    server = server_process("--model_name=endless", f"--model_base_path={base}")
    server.wait_ready("endless")
    call = stubs(server.target).prediction.Predict.future(request("endless", "count"))
    eventually(lambda: in_flight(server.rest_port) == 1)
    server.terminate()
    time.sleep(0.5)
    assert server.process.poll() is None
    server.terminate()
    assert server.process.wait(timeout=25) == 1  # the first alone takes 40 seconds
    assert call.code() == grpc.StatusCode.UNAVAILABLE


def run_with(server):
    """A process of the command whose server is made of this code; it prints when it starts."""
    code = textwrap.dedent(f"""
        import ctypes, signal, sys, threading, types
        import serving.server.__main__ as command

        class ModelServer:
            def __init__(self, arguments, stop):
                self.stop = stop

            def start(self):
                print("starting", flush=True)
{textwrap.indent(textwrap.dedent(server), " " * 16)}

            def close(self):
                pass

        made = types.ModuleType("made")
        made.ModelServer = ModelServer
        sys.modules["training.command.startup"] = made
        sys.modules["serving.server.model_server"] = made
        command._HARD_STOP_SECONDS = 1
        command._end(command.main(["--model_base_path=/no", "--shutdown_grace_seconds=0"]))
    """)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def test_a_signal_that_reaches_another_thread_stops_the_server():
    with run_with("signal.pthread_kill(threading.get_ident(), signal.SIGTERM)") as process:
        try:
            assert process.stdout.readline() == "starting\n"
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()


@pytest.mark.parametrize("library", ["CDLL", "PyDLL"])
def test_nothing_that_runs_keeps_the_process_beyond_the_hard_stop(library):
    # CDLL: the model's code never returns. PyDLL: nor does it let other threads run Python.
    server = f"""
        if {library == "PyDLL"}:
            self.stop.wait()
        lock = ctypes.create_string_buffer(256)
        for _ in range(2):
            ctypes.{library}(None).pthread_mutex_lock(lock)
    """
    with run_with(server) as process:
        try:
            assert process.stdout.readline() == "starting\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == -signal.SIGALRM
        finally:
            process.kill()
