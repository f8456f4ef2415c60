"""One loaded version of a model."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
from google.protobuf.message import Message

from serving.savedmodel.status import invalid
from serving.server.admission import MOST_ROWS, check_inputs
from serving.server.batching import BatchScheduler
from serving.server.call import Call
from serving.server.monitoring import Metrics
from serving.server.tensors import packed, to_array
from serving.server.workers import HeavyError

# A request with a longer string or more rows is heavy: it runs apart, with low priority.
_LONG_BYTES = 1000
_MANY_ROWS = 32


class LoadedModel(Protocol):
    """A model in a runtime, such as `serving.savedmodel.model.SavedModel`."""

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
    """The batching of usual requests, and that of heavy ones."""

    usual: BatchScheduler
    heavy: BatchScheduler


class Servable:
    """A model version that answers requests.

    Args:
        name, version: of the model.
        model: the loaded model.
        metrics: records run times.
        batchers: run requests together; without them each runs alone.
        most_rows: the limit of a request's rows; 0 for no limit.
    """

    def __init__(
        self,
        name: str,
        version: int,
        model: LoadedModel,
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
        """Run a signature; return the named outputs, or all.

        Raises StatusError, and HeavyError for a request that has to run among the heavy ones.
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
        """Make running requests fail soon. No others can follow."""
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
        raise invalid(f"tensor parsing error: {alias}") from error
