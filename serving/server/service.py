"""Requests to models, by gRPC and REST alike: the version, its inputs, the run, the metrics."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from google.protobuf.message import Message
from prometheus_client import Histogram

from serving.client.protobuf import SIGNATURES
from serving.client.serving_pb2 import GetModelMetadataResponse, SignatureDefMap
from serving.savedmodel.status import Code, StatusError, invalid
from serving.server.batching import Batcher
from serving.server.calls import Call, Metrics, Workers
from serving.server.models import Models
from serving.server.tensors import Arrays, check_shapes

DEFAULT_SIGNATURE = "serving_default"
Choice = tuple[str, int | None]  # a model and its version, None for the newest


@dataclass(frozen=True)
class Service:
    """Answers requests, of `most_rows` at most; without a batcher each runs alone.

    Workers run the models; status and metadata need none.
    """

    models: Models
    metrics: Metrics
    workers: Workers
    batcher: Batcher | None
    most_rows: int

    def predict(
        self,
        choice: Choice,
        signature_name: str,
        call: Call,
        read: Callable[[Mapping[str, Message]], Arrays],
        names: Sequence[str] = (),
    ) -> tuple[int, Arrays]:
        """The number of the version that answers, and its outputs. Raises StatusError.

        Args:
            choice: the model and its version.
            signature_name: "" for the default.
            call: the request.
            read: makes the inputs, by the signature's `infos`.
            names: of the outputs; none for all.
        """
        name, started, code = choice[0], time.perf_counter(), Code.INTERNAL
        try:
            call.check()
            with self.models.acquire(*choice) as (number, model):
                key = signature_name or DEFAULT_SIGNATURE
                if key not in model.signatures:
                    message = f'Serving signature key "{key}" not found.'
                    raise StatusError(Code.FAILED_PRECONDITION, message)
                _check_outputs(names, model.signatures[key].outputs)
                inputs = read(model.signatures[key].inputs)
                check_shapes(inputs, model.signatures[key].inputs, self.most_rows)
                ran, run = time.perf_counter(), partial(model.run, key)
                if self.batcher:
                    outputs = self.batcher.run((id(model), key), run, inputs, call)
                    outputs = {alias: outputs[alias] for alias in names or outputs}
                else:
                    outputs = run(inputs, names, call.seconds_left)
                _observe(self.metrics.runtime.labels(name, "Predict"), ran)
            code = Code.OK
            return number, outputs
        except StatusError as error:
            code = error.code
            raise
        finally:
            # Clients choose names freely: only those of the configuration become labels.
            label = name if self.models.has(name) else ""
            self.metrics.requests.labels(label, code.name).inc()
            _observe(self.metrics.latency.labels(label, "Predict", call.entrypoint), started)

    def metadata(self, choice: Choice) -> Message:
        """The GetModelMetadataResponse of a version of a model: its signatures."""
        signatures = SignatureDefMap()
        response = GetModelMetadataResponse()
        with self.models.acquire(*choice) as (number, model):
            for alias, signature in model.signatures.items():
                signatures.signature_def[alias].MergeFromString(signature.SerializeToString())
        response.model_spec.name = choice[0]
        response.model_spec.version.value = number
        response.metadata["signature_def"].type_url = SIGNATURES
        response.metadata["signature_def"].value = signatures.SerializeToString()
        return response


def _observe(histogram: Histogram, started: float) -> None:
    histogram.observe((time.perf_counter() - started) * 1e6)


def _check_outputs(names: Sequence[str], outputs: Iterable[str]) -> None:
    if len({*names} & {*outputs}) != len(names):
        expected = f"some of the outputs {sorted(outputs)}, each once"
        raise invalid(f"expected {expected}. Received: {sorted(names)}")
