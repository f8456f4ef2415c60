"""PredictionService and ModelService: what gRPC and REST have in common, and gRPC's handlers."""

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from serving.client import serving_pb2
from serving.savedmodel.status import Code, StatusError, invalid, shortened
from serving.server.calls import Call, Metrics, Workers
from serving.server.manager import ModelManager
from serving.server.predict import Servable

T = TypeVar("T")
log = logging.getLogger(__name__)
Context: TypeAlias = grpc.aio.ServicerContext
Answer = Callable[[bytes, Call], Awaitable[bytes]]
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class Service:
    """The methods of both services.

    Args:
        manager: of the models.
        metrics: counts requests.
        workers: run the models; status and metadata need none.
        seconds: that a request may take.
    """

    def __init__(self, manager: ModelManager, metrics: Metrics, workers: Workers, seconds: float):
        self.manager = manager
        self.metrics = metrics
        self.workers = workers
        self._seconds = seconds

    def run(self, name: str, version: int | None, call: Call, answer: Callable[[Servable], T]) -> T:
        """Return `answer(servable)` for a version of a model; count and time it."""
        started, code = time.perf_counter(), Code.INTERNAL
        try:
            call.check()
            with self.manager.acquire(name, version) as servable:
                result = answer(servable)
            code = Code.OK
            return result
        except StatusError as error:
            code = error.code
            raise
        finally:
            # Clients choose names freely: only those of the configuration become labels.
            label = name if self.manager.has(name) else ""
            self.metrics.requests.labels(label, code.name).inc()
            latency = self.metrics.latency.labels(label, "Predict", call.entrypoint)
            latency.observe((time.perf_counter() - started) * 1e6)

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """For `grpc.aio.Server.add_generic_rpc_handlers`."""
        services: dict[str, dict[str, Answer]] = {
            "PredictionService": {"Predict": self._predict, "GetModelMetadata": self._metadata},
            "ModelService": {"GetModelStatus": self._status},
        }
        return [
            grpc.method_handlers_generic_handler(
                f"tensorflow.serving.{service}",
                {
                    name: grpc.unary_unary_rpc_method_handler(self._with_status(answer))
                    for name, answer in methods.items()
                },
            )
            for service, methods in services.items()
        ]

    def _with_status(self, answer: Answer) -> Callable[[bytes, Context], Awaitable[bytes | None]]:
        async def handle(data: bytes, context: Context) -> bytes | None:
            left = context.time_remaining()
            call = Call(self._seconds if left is None else min(left, self._seconds))
            try:
                return await answer(data, call)
            except StatusError as error:
                await context.abort(_CODES[error.code], shortened(error.message))
            except DecodeError:
                message = "The message of the request cannot be parsed"
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, message)
            except Exception as error:
                log.exception("A request failed inside the server")
                message = StatusError.internal(error).message
                await context.abort(grpc.StatusCode.INTERNAL, shortened(message))
            return None  # an abort raises

        return handle

    async def _predict(self, data: bytes, call: Call) -> bytes:
        def work() -> bytes:
            request = serving_pb2.PredictRequest.FromString(data)
            name, version = _choice(request)
            response = self.run(name, version, call, lambda each: each.predict(request, call))
            return response.SerializeToString()

        return await self.workers.run(work, call)

    async def _metadata(self, data: bytes, call: Call) -> bytes:
        request = serving_pb2.GetModelMetadataRequest.FromString(data)
        choice = _choice(request)
        if not request.metadata_field:
            raise invalid("GetModelMetadataRequest must specify at least one metadata_field")
        for field in request.metadata_field:
            if field != "signature_def":
                raise invalid(f"Metadata field {field} is not supported")
        return self.metadata(*choice).SerializeToString()

    async def _status(self, data: bytes, call: Call) -> bytes:
        request = serving_pb2.GetModelStatusRequest.FromString(data)
        return self.manager.status(*_choice(request)).SerializeToString()

    def metadata(self, name: str, version: int | None) -> Message:
        """The GetModelMetadataResponse of a version of a model."""
        with self.manager.acquire(name, version) as servable:
            return servable.metadata()


def _choice(request: Any) -> tuple[str, int | None]:
    """The model and version that a request names, None for the newest."""
    if not request.HasField("model_spec"):
        raise invalid("Missing ModelSpec")
    spec = request.model_spec
    if spec.WhichOneof("version_choice") == "version_label":
        raise invalid(f"Unrecognized servable version label: {spec.version_label}")
    return spec.name, spec.version.value if spec.HasField("version") else None
