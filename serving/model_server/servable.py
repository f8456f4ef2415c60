"""One loaded version of a model."""

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

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

# Strings beyond this run in a thread, and with batching in batches, of their own.
_LONG_BYTES = 1000
_CORES = os.cpu_count() or 1


class Slots:
    """At most `count` runs at once, of all models; the others wait their turn.

    `running` tells how many runs there are.
    """

    def __init__(self, count: int):
        self.running = 0
        self._lock = threading.Lock()
        self._free = threading.Semaphore(count)

    def run(self, call: Callable[[int], T], timeout_ms: int) -> T:
        """`call(milliseconds left)`, 0 meaning no limit. Raises StatusError DEADLINE_EXCEEDED."""
        started = time.monotonic()
        if not self._free.acquire(timeout=timeout_ms / 1000 if timeout_ms else None):
            raise StatusError(Code.DEADLINE_EXCEEDED, "Timed out waiting for notification")
        with self._lock:
            self.running += 1
        try:
            waited_ms = int((time.monotonic() - started) * 1000)
            return call(max(1, timeout_ms - waited_ms) if timeout_ms else 0)
        finally:
            with self._lock:
                self.running -= 1
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
        long = _is_long(inputs)
        if isinstance(self._runner, Slots):
            run = partial(self._run_session, long, signature, inputs, outputs)
            found = self._runner.run(run, timeout_ms)
        else:
            found = self._runner.run(
                (id(self), signature_name, tuple(outputs), long),
                partial(self._run_batch, signature, outputs, long),
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
        long: bool,
        inputs: dict[str, np.ndarray],
        seconds: float | None,
    ) -> dict[str, np.ndarray]:
        protos = {alias: tf.make_tensor_proto(array) for alias, array in inputs.items()}
        timeout_ms = 0 if seconds is None else max(1, int(seconds * 1000))
        return self._run_session(long, signature, protos, outputs, timeout_ms)

    def _run_session(self, long: bool, *arguments: Any) -> dict[str, np.ndarray]:
        """`ModelSession.run` in the shared pool, if that is not for others to suffer."""
        if long:  # its many ops would keep those of short texts waiting
            return _in_slow_thread(partial(self.session.run, *arguments, own_thread=True))
        crowded = isinstance(self._runner, Slots) and self._runner.running >= _CORES
        return self.session.run(*arguments, own_thread=crowded)

    def close(self) -> None:
        """Free the session."""
        self.session.close()


def _is_long(inputs: Mapping[str, tensor_pb2.TensorProto]) -> bool:
    return any(len(text) > _LONG_BYTES for proto in inputs.values() for text in proto.string_val)


def _in_slow_thread(call: Callable[[], T]) -> T:
    """Carry out `call` in a thread that gives way to others."""
    done: Future[T] = Future()

    def work() -> None:
        if sys.platform == "linux":  # elsewhere threads have no priority of their own
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
        try:
            done.set_result(call())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return done.result()


def _to_array(alias: str, proto: tensor_pb2.TensorProto) -> np.ndarray:
    try:
        return to_array(proto)
    except (TypeError, ValueError) as error:
        raise StatusError(Code.INVALID_ARGUMENT, f"tensor parsing error: {alias}") from error
