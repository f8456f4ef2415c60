"""One loaded version of a model."""

import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from serving.savedmodel.session import ModelSession, read_tensor
from serving.savedmodel.status import Code, StatusError
from serving.server.admission import MOST_ROWS, check_inputs
from serving.server.batching import BatchScheduler
from serving.server.call import Call
from serving.server.monitoring import Metrics
from serving.server.op_threads import OpThreads, give_way
from serving.server.slots import Slots

# Requests with longer strings, or of more rows, are heavy: they run apart, and give way to others.
_LONG_BYTES = 1000
_MANY_ROWS = 32
_CORES = os.cpu_count() or 1


class Servable:
    """A model version in its session.

    Args:
        name, version, path: of the model.
        metrics: where run times are recorded.
        runner: runs requests together, or each alone when it has a slot.
        tags: of the meta graph to load.
        threads: that run the ops.
        heavy: the same for requests of long texts or many rows; default is one at a time.
        most_rows: that a request may have; 0 for any number.
    """

    def __init__(
        self,
        name: str,
        version: int,
        path: Path,
        metrics: Metrics,
        runner: BatchScheduler | Slots,
        tags: Sequence[str] = ("serve",),
        threads: OpThreads | None = None,
        heavy: BatchScheduler | Slots | None = None,
        most_rows: int = MOST_ROWS,
    ):
        self.name = name
        self.version = version
        self._threads = threads or OpThreads()
        self.session = ModelSession(path, tags, self._threads.config)
        give_way()
        self._metrics = metrics
        self._runner = runner
        self._heavy = heavy or Slots(1)
        self.most_rows = most_rows
        self._ranks = {
            name: _ranks(self.session.meta_graph, signature)
            for name, signature in self.session.signatures.items()
        }

    def run(
        self,
        signature_name: str,
        inputs: Mapping[str, tensor_pb2.TensorProto],
        outputs: Sequence[str],
        call: Call,
        api: str = "Predict",
    ) -> dict[str, np.ndarray]:
        """Run a signature; see `ModelSession.run`. Raises StatusError."""
        signature = self.session.signatures[signature_name]
        ranks = self._ranks[signature_name]
        call.version = self.version
        call.rows = check_inputs(inputs, signature.inputs, ranks, self.most_rows)
        call.check()
        started = time.perf_counter()
        heavy = call.rows > _MANY_ROWS or _has_long_text(inputs)
        runner = self._heavy if heavy else self._runner
        if isinstance(runner, Slots):
            found = runner.run(
                lambda: self._run_session(
                    heavy, signature, inputs, outputs, call.milliseconds_left
                ),
                call,
            )
        else:
            batch = runner.run(
                (id(self), signature_name),
                partial(self._run_batch, signature, heavy),
                {alias: _to_array(alias, proto) for alias, proto in inputs.items()},
                call,
            )
            found = {alias: batch[alias] for alias in outputs or batch}
        took = time.perf_counter() - started
        self._metrics.observe("runtime_latency", took, model_name=self.name, API=api, runtime="TF1")
        return found

    def _run_batch(
        self,
        signature: meta_graph_pb2.SignatureDef,
        heavy: bool,
        inputs: dict[str, np.ndarray],
        seconds: float | None,
    ) -> dict[str, np.ndarray]:
        protos = {alias: tf.make_tensor_proto(array) for alias, array in inputs.items()}
        timeout_ms = 0 if seconds is None else max(1, int(seconds * 1000))
        return self._run_session(heavy, signature, protos, (), timeout_ms)

    def _run_session(
        self,
        heavy: bool,
        signature: meta_graph_pb2.SignatureDef,
        inputs: Mapping[str, tensor_pb2.TensorProto],
        outputs: Sequence[str],
        timeout_ms: int,
    ) -> dict[str, np.ndarray]:
        """`ModelSession.run` in the shared threads, if that is not for others to suffer."""
        run = partial(self.session.run, signature, inputs, outputs, timeout_ms)
        crowded = isinstance(self._runner, Slots) and self._runner.running >= _CORES
        if not (heavy or crowded):
            return run()
        with self._threads.lend(slow=heavy) as pool:
            return run(pool)

    def stop(self) -> None:
        """Have the runs under way fail soon; no others can follow."""
        self.session.stop()

    def close(self) -> None:
        """Free the session."""
        self.session.close()


def _ranks(
    meta_graph: meta_graph_pb2.MetaGraphDef, signature: meta_graph_pb2.SignatureDef
) -> dict[str, int]:
    """Ranks that inputs must have: those that feed a placeholder of known rank.

    A signature may also feed a computed tensor, whose rank says nothing of what else would do.
    """
    placeholders = {
        node.name for node in meta_graph.graph_def.node if node.op.startswith("Placeholder")
    }
    return {
        alias: len(info.tensor_shape.dim)
        for alias, info in signature.inputs.items()
        if info.HasField("tensor_shape")
        and not info.tensor_shape.unknown_rank
        and info.name.partition(":")[0] in placeholders
    }


def _has_long_text(inputs: Mapping[str, tensor_pb2.TensorProto]) -> bool:
    return any(len(text) > _LONG_BYTES for proto in inputs.values() for text in proto.string_val)


def _to_array(alias: str, proto: tensor_pb2.TensorProto) -> np.ndarray:
    try:
        return read_tensor(proto)
    except StatusError as error:
        raise StatusError(Code.INVALID_ARGUMENT, f"tensor parsing error: {alias}") from error
