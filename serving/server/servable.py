"""One loaded version of a model."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
from google.protobuf.message import Message

from serving.savedmodel.status import Code, StatusError
from serving.server.admission import MOST_ROWS, check_inputs
from serving.server.batching import BatchScheduler
from serving.server.call import Call
from serving.server.monitoring import Metrics
from serving.server.tensors import packed, to_array
from serving.server.workers import HeavyError

# Requests with longer strings, or of more rows, are heavy: they run apart, and give way to others.
_LONG_BYTES = 1000
_MANY_ROWS = 32


class Model(Protocol):
    """What a version is served by, such as `serving.savedmodel.model.SavedModel`."""

    @property
    def signatures(self) -> Mapping[str, Message]:
        """The signatures by name."""

    @property
    def ranks(self) -> Mapping[str, Mapping[str, int]]:
        """The ranks that inputs must have, by signature and alias."""

    def run(
        self,
        name: str,
        inputs: Mapping[str, Message],
        outputs: Sequence[str] = (),
        timeout_ms: int = 0,
        slow: bool = False,
    ) -> dict[str, np.ndarray]:
        """Run a signature. Raises StatusError."""

    def stop(self) -> None:
        """Have the runs under way fail soon."""

    def close(self) -> None:
        """Free the resources."""


class Batchers(NamedTuple):
    """What runs requests together, and the same for heavy ones."""

    usual: BatchScheduler
    heavy: BatchScheduler


class Servable:
    """A model version that answers requests.

    Args:
        name, version: of the model.
        model: that is loaded.
        metrics: where run times are recorded.
        batchers: run requests together; without them each runs alone.
        most_rows: that a request may have; 0 for any number.
    """

    def __init__(
        self,
        name: str,
        version: int,
        model: Model,
        metrics: Metrics,
        batchers: Batchers | None = None,
        most_rows: int = MOST_ROWS,
    ):
        self.name = name
        self.version = version
        self.model = model
        self.most_rows = most_rows
        self._metrics = metrics
        self._batchers = batchers

    @property
    def signatures(self) -> Mapping[str, Message]:
        """The signatures by name."""
        return self.model.signatures

    def run(
        self,
        name: str,
        inputs: Mapping[str, Message],
        outputs: Sequence[str],
        call: Call,
        api: str = "Predict",
    ) -> dict[str, np.ndarray]:
        """The outputs of a signature, or all where none are named.

        Raises StatusError, and HeavyError where the request is to be sent to where heavy ones wait.
        """
        call.version = self.version
        signature, ranks = self.signatures[name], self.model.ranks[name]
        call.rows = check_inputs(inputs, signature.inputs, ranks, self.most_rows)
        heavy = call.rows > _MANY_ROWS or _has_long_text(inputs)
        call.check()
        started = time.perf_counter()
        if self._batchers:
            batcher = self._batchers.heavy if heavy else self._batchers.usual
            arrays = {alias: _array(alias, proto) for alias, proto in inputs.items()}
            run = partial(self._run_batch, name, heavy)
            batch = batcher.run((id(self), name), run, arrays, call)
            found = {alias: batch[alias] for alias in outputs or batch}
        elif heavy and not call.apart:
            raise HeavyError
        else:
            found = self.model.run(name, inputs, outputs, call.milliseconds_left, heavy)
        took = time.perf_counter() - started
        self._metrics.observe("runtime_latency", took, model_name=self.name, API=api, runtime="TF1")
        return found

    def _run_batch(
        self, name: str, heavy: bool, inputs: Mapping[str, np.ndarray], seconds: float | None
    ) -> dict[str, np.ndarray]:
        protos = {alias: packed(array) for alias, array in inputs.items()}
        timeout_ms = 0 if seconds is None else max(1, int(seconds * 1000))
        return self.model.run(name, protos, (), timeout_ms, heavy)

    def stop(self) -> None:
        """Have the runs under way fail soon; no others can follow."""
        self.model.stop()

    def close(self) -> None:
        """Free the model."""
        self.model.close()


def _has_long_text(inputs: Mapping[str, Message]) -> bool:
    return any(len(text) > _LONG_BYTES for proto in inputs.values() for text in proto.string_val)


def _array(alias: str, proto: Message) -> np.ndarray:
    try:
        return to_array(proto)
    except ValueError as error:
        raise StatusError(Code.INVALID_ARGUMENT, f"tensor parsing error: {alias}") from error
