"""SIGTERM has a bound, whatever runs."""

import time

import grpc
import pytest
import tensorflow as tf

from tests.serving.conftest import add_version
from tests.serving.test_versions import request


class Endless(tf.Module):
    """Counts to 2^40 in a loop of the graph: days."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def __call__(self, text):
        # As long as the text says "count": others, as the warm-up's, are answered at once.
        last = tf.where(tf.reduce_any(text == "count"), tf.constant(2**40, tf.int64), 1)
        done = tf.while_loop(lambda n: n < last, lambda n: [n + 1], [tf.constant(0, tf.int64)])
        return {"count": tf.fill(tf.shape(text), done[0])}


@pytest.fixture(scope="module")
def endless(tmp_path_factory):
    path = tmp_path_factory.mktemp("endless") / "model"
    module = Endless()
    tf.saved_model.save(module, str(path), signatures=module.__call__)
    return path


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
    time.sleep(1)
    assert not call.done()
    server.terminate()
    started = time.monotonic()
    assert server.process.wait(timeout=60) is not None
    assert time.monotonic() - started < 30  # 11, and a machine that is busy
    assert call.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


def test_a_second_signal_stops_at_once(endless, tmp_path, server_process, stubs):
    base = tmp_path / "endless"
    add_version(endless, base, 1)
    server = server_process("--model_name=endless", f"--model_base_path={base}")
    server.wait_ready("endless")
    call = stubs(server.target).prediction.Predict.future(request("endless", "count"))
    time.sleep(1)
    server.terminate()
    time.sleep(0.5)
    assert server.process.poll() is None
    server.terminate()
    assert server.process.wait(timeout=10) == 1
    assert call.code() == grpc.StatusCode.UNAVAILABLE
