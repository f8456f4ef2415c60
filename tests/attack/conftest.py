"""Requests to attack with, and a model that never ends."""

import contextlib
import time

import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from tests.serving.conftest import (  # noqa: F401  (fixtures)
    base,
    client,
    protocol_server,
    saved,
    stubs,
)

FLOAT, STRING = 1, 7


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


@contextlib.contextmanager
def within(seconds):
    """The block takes less time than this."""
    started = time.monotonic()
    yield
    took = time.monotonic() - started
    assert took < seconds, f"it took {took:.1f} s"
