"""Requests to attack with."""

import contextlib
import os

from tensorflow_serving.apis import predict_pb2

from tests.serving.conftest import (  # noqa: F401  (fixtures)
    client,
    protocol_server,
    saved,
    stubs,
)

FLOAT, STRING = 1, 7


def tensor_request(model="upper", dtype=STRING, dims=(), signature="", **fields):
    """A PredictRequest with one tensor, which need not make sense."""
    made = predict_pb2.PredictRequest()
    made.model_spec.name, made.model_spec.signature_name = model, signature
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


@contextlib.contextmanager
def within(seconds):
    """The block, and the processes that it waits for, take less processor time than this."""
    started = sum(os.times()[:4])
    yield
    assert sum(os.times()[:4]) - started < seconds
