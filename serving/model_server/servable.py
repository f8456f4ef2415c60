"""One loaded version of a model."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2

from serving.model_server.batching import BatchScheduler
from serving.model_server.metrics import Metrics
from serving.session import ModelSession
from serving.status import Code, StatusError
from serving.tensors import to_array

T = TypeVar("T")


class Slots:
    """At most `count` runs at once, of all models; the others wait their turn."""

    def __init__(self, count: int):
        self._free = threading.Semaphore(count)

    def run(self, call: Callable[[int], T], timeout_ms: int) -> T:
        """`call(milliseconds left)`, 0 meaning no limit. Raises StatusError DEADLINE_EXCEEDED."""
        started = time.monotonic()
        if not self._free.acquire(timeout=timeout_ms / 1000 if timeout_ms else None):
            raise StatusError(Code.DEADLINE_EXCEEDED, "Timed out waiting for notification")
        try:
            waited_ms = int((time.monotonic() - started) * 1000)
            return call(max(1, timeout_ms - waited_ms) if timeout_ms else 0)
        finally:
            self._free.release()


class Servable:
    """A model version in its session.

    Args:
        name, version, path: of the model.
        metrics: where run times are recorded.
        runner: runs requests together, or each alone when it has a slot.
        tags: of the meta graph to load.
        config: of the session, e.g. its thread pools.
    """

    def __init__(
        self,
        name: str,
        version: int,
        path: Path,
        metrics: Metrics,
        runner: BatchScheduler | Slots,
        tags: Sequence[str] = ("serve",),
        config: config_pb2.ConfigProto | None = None,
    ):
        self.name = name
        self.version = version
        self.session = ModelSession(path, tags, config)
        self._metrics = metrics
        self._runner = runner

    def run(
        self,
        signature_name: str,
        inputs: Mapping[str, tensor_pb2.TensorProto],
        outputs: Sequence[str],
        timeout_ms: int,
        api: str = "Predict",
    ) -> dict[str, np.ndarray]:
        """Run a signature; see `ModelSession.run`."""
        signature = self.session.signatures[signature_name]
        started = time.perf_counter()
        if isinstance(self._runner, Slots):
            found = self._runner.run(
                partial(self.session.run, signature, inputs, outputs), timeout_ms
            )
        else:
            found = self._runner.run(
                (id(self), signature_name, tuple(outputs)),
                partial(self._run_batch, signature, outputs),
                {alias: _to_array(alias, proto) for alias, proto in inputs.items()},
                timeout_ms,
            )
        took = time.perf_counter() - started
        self._metrics.observe("runtime_latency", took, model_name=self.name, API=api, runtime="TF1")
        return found

    def _run_batch(
        self,
        signature: meta_graph_pb2.SignatureDef,
        outputs: Sequence[str],
        inputs: dict[str, np.ndarray],
        seconds: float | None,
    ) -> dict[str, np.ndarray]:
        protos = {alias: tf.make_tensor_proto(array) for alias, array in inputs.items()}
        timeout_ms = 0 if seconds is None else max(1, int(seconds * 1000))
        return self.session.run(signature, protos, outputs, timeout_ms)

    def close(self) -> None:
        """Free the session."""
        self.session.close()


def _to_array(alias: str, proto: tensor_pb2.TensorProto) -> np.ndarray:
    try:
        return to_array(proto)
    except (TypeError, ValueError) as error:
        raise StatusError(Code.INVALID_ARGUMENT, f"tensor parsing error: {alias}") from error
