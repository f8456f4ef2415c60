"""PredictionService and ModelService over gRPC."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError, Message

from serving.client import serving_pb2
from serving.savedmodel.status import StatusError, invalid, shortened
from serving.server.calls import Call
from serving.server.service import DEFAULT_SIGNATURE, Choice, Service
from serving.server.tensors import Arrays, read_tensors, to_proto

log = logging.getLogger(__name__)
Context: TypeAlias = grpc.aio.ServicerContext
Answer = Callable[[bytes, Call], Awaitable[Message]]
_CODES = {code.value[0]: code for code in grpc.StatusCode}


@dataclass(frozen=True)
class GrpcMethods:
    """The methods of both services; a request may take so many seconds."""

    service: Service
    seconds: float

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
            call = Call(self.seconds if left is None else min(left, self.seconds))
            try:
                return (await answer(data, call)).SerializeToString()
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

    async def _predict(self, data: bytes, call: Call) -> Message:
        return await self.service.workers.run(lambda: self._outputs(data, call), call)

    def _outputs(self, data: bytes, call: Call) -> Message:
        request = serving_pb2.PredictRequest.FromString(data)
        choice, spec = _choice(request), request.model_spec

        def read(infos: Mapping[str, Message]) -> Arrays:
            return read_tensors(request.inputs, infos, self.service.most_rows)

        names = list(request.output_filter)
        version, outputs = self.service.predict(choice, spec.signature_name, call, read, names)
        response = serving_pb2.PredictResponse()
        for alias, array in outputs.items():
            response.outputs[alias].CopyFrom(to_proto(array))
        response.model_spec.name = spec.name
        response.model_spec.signature_name = spec.signature_name or DEFAULT_SIGNATURE
        response.model_spec.version.value = version
        return response

    async def _metadata(self, data: bytes, call: Call) -> Message:
        request = serving_pb2.GetModelMetadataRequest.FromString(data)
        choice = _choice(request)
        if {*request.metadata_field} != {"signature_def"}:
            received = list(request.metadata_field)
            raise invalid(f"metadata_field expected signature_def. Received: {received}")
        return self.service.metadata(choice)

    async def _status(self, data: bytes, call: Call) -> Message:
        request = serving_pb2.GetModelStatusRequest.FromString(data)
        return self.service.models.status(*_choice(request))


def _choice(request: Any) -> Choice:
    if not request.HasField("model_spec"):
        raise invalid("Missing ModelSpec")
    spec = request.model_spec
    if spec.WhichOneof("version_choice") == "version_label":
        raise invalid(f"Unrecognized servable version label: {spec.version_label}")
    return spec.name, spec.version.value if spec.HasField("version") else None
