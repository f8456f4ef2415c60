"""The two services, independent of the protocol: gRPC and REST both call this."""

import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

from google.protobuf.message import Message

from serving.client import protobuf
from serving.savedmodel.status import Code, StatusError, invalid
from serving.server import examples
from serving.server.call import Call
from serving.server.manager import ModelManager
from serving.server.monitoring import Metrics
from serving.server.predict import metadata, predict
from serving.server.request_log import RequestLog
from serving.server.servable import Servable
from serving.server.workers import HeavyError

T = TypeVar("T")
log = logging.getLogger(__name__)

# The request message and the function of each method that runs a model.
INFERENCE: dict[str, tuple[Any, Callable[..., Message]]] = {
    "Predict": (protobuf.PredictRequest, predict),
    "Classify": (protobuf.message("ClassificationRequest"), examples.classify),
    "Regress": (protobuf.message("RegressionRequest"), examples.regress),
    "MultiInference": (protobuf.message("MultiInferenceRequest"), examples.multi_inference),
}


class Api:
    """The methods of both services. Each raises StatusError.

    Args:
        manager: of the models.
        metrics: counts requests.
        request_log: logs requests.
        strict: refuse a signature whose method name does not match the request.
    """

    def __init__(
        self,
        manager: ModelManager,
        metrics: Metrics,
        request_log: RequestLog,
        strict: bool,
    ):
        self._manager = manager
        self.metrics = metrics
        self._request_log = request_log
        self._strict = strict

    def infer(self, method: str, request: Message, call: Call) -> Message:
        """Answer a request of one of `INFERENCE`."""
        asked = request
        if method == "MultiInference":
            if not request.tasks:
                raise invalid("Inference request contains no tasks.")
            asked = request.tasks[0]
        return self.run(
            lambda servable: self.answer(method, servable, request, call),
            asked.model_spec,
            call,
            method,
        )

    def get_model_metadata(self, request: Message) -> Message:
        """The signatures of a model version."""
        if not request.HasField("model_spec"):
            raise invalid("Missing ModelSpec")
        if not request.metadata_field:
            raise invalid(
                "GetModelMetadataRequest must specify at least one metadata_field",
            )
        for field in request.metadata_field:
            if field != "signature_def":
                raise invalid(f"Metadata field {field} is not supported")
        with self._manager.acquire(request.model_spec) as servable:
            return metadata(servable)

    def get_model_status(self, request: Message) -> Message:
        """State of one version of a model, or of all."""
        if not request.HasField("model_spec"):
            raise invalid("Missing ModelSpec")
        return protobuf.GetModelStatusResponse(
            model_version_status=self._manager.status(request.model_spec)
        )

    def reload_config(self, request: Message) -> None:
        """Serve the models of another configuration."""
        if request.config.WhichOneof("config") != "model_config_list":
            raise invalid(
                "ServerModelConfig type not supported by HandleReloadConfigRequest. Only "
                "ModelConfigList is currently supported",
            )
        self._manager.configure(request.config.model_config_list)

    def status_of(self, error: Exception, call: Call) -> StatusError:
        """The status of a failed request; a refusal for overload is counted."""
        if not isinstance(error, StatusError):
            log.error("A request failed inside the server", exc_info=error)
            return StatusError.internal(error)
        if error.code == Code.RESOURCE_EXHAUSTED:
            self.metrics.count("requests_rejected", entrypoint=call.entrypoint)
        return error

    def answer(self, method: str, servable: Servable, request: Message, call: Call) -> Message:
        """The answer of a version to a request of one of `INFERENCE`."""
        _, function = INFERENCE[method]
        return function(servable, request, call, self._strict)

    def run(self, answer: Callable[[Servable], T], spec: Message, call: Call, method: str) -> T:
        """Return `answer(servable)` for the version that `spec` names; count, time and log it."""
        started = time.perf_counter()
        status: Code | None = Code.INTERNAL
        try:
            call.check()
            with self._manager.acquire(spec) as servable:
                found = answer(servable)
            status = Code.OK
            return found
        except StatusError as error:
            status = error.code
            raise
        except HeavyError:
            status = None  # it starts again, and is counted then
            raise
        finally:
            if status is not None:
                self._count(spec.name, call, method, status, time.perf_counter() - started)

    def _count(self, model: str, call: Call, method: str, status: Code, took: float) -> None:
        # Clients choose names freely: only configured ones become labels.
        name = model if self._manager.knows(model) else ""
        self.metrics.count("request_count", model_name=name, status=status.name)
        labels = {"model_name": name, "API": method, "entrypoint": call.entrypoint}
        self.metrics.observe("request_latency", took, **labels, status=status.name)
        self._request_log.write(call, method, model, status.name, took)
