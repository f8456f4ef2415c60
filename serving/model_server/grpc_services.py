"""PredictionService and ModelService over gRPC."""

import logging
from collections.abc import Callable
from typing import TypeVar

import grpc
from google.protobuf.message import Message
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from serving.model_server.manager import ModelManager
from serving.model_server.servable import Servable, metadata, predict
from serving.status import Code, StatusError

_CODES = {code.value[0]: code for code in grpc.StatusCode}
_MAX_MESSAGE = 1024
_FOREVER_MS = 2**31

log = logging.getLogger(__name__)
Response = TypeVar("Response", bound=Message)


def _shortened(message: str) -> str:
    return message if len(message) <= _MAX_MESSAGE else message[:_MAX_MESSAGE] + "...TRUNCATED"


def _timeout_ms(context: grpc.ServicerContext) -> int:
    """Milliseconds left for the request; 0 where it has no deadline."""
    remaining = context.time_remaining()
    if remaining is None or remaining * 1000 >= _FOREVER_MS:
        return 0
    if remaining <= 0:
        raise StatusError(Code.DEADLINE_EXCEEDED, "Timed out waiting for notification")
    return max(1, int(remaining * 1000))


def _answer(context: grpc.ServicerContext, call: Callable[[], Response]) -> Response:
    try:
        return call()
    except StatusError as error:
        context.abort(_CODES[error.code], _shortened(error.message))
    except Exception as error:
        log.exception("A request failed inside the server")
        context.abort(grpc.StatusCode.INTERNAL, _shortened(f"{type(error).__name__}: {error}"))


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Answers from the versions that `manager` serves."""

    def __init__(self, manager: ModelManager[Servable]):
        self._manager = manager

    def Predict(
        self, request: predict_pb2.PredictRequest, context: grpc.ServicerContext
    ) -> predict_pb2.PredictResponse:
        """Run any signature."""

        def call() -> predict_pb2.PredictResponse:
            with self._manager.acquire(request.model_spec) as servable:
                return predict(servable, request, _timeout_ms(context))

        return _answer(context, call)

    def GetModelMetadata(
        self,
        request: get_model_metadata_pb2.GetModelMetadataRequest,
        context: grpc.ServicerContext,
    ) -> get_model_metadata_pb2.GetModelMetadataResponse:
        """The signatures of a model version."""

        def call() -> get_model_metadata_pb2.GetModelMetadataResponse:
            if not request.HasField("model_spec"):
                raise StatusError(Code.INVALID_ARGUMENT, "Missing ModelSpec")
            if not request.metadata_field:
                raise StatusError(
                    Code.INVALID_ARGUMENT,
                    "GetModelMetadataRequest must specify at least one metadata_field",
                )
            for field in request.metadata_field:
                if field != "signature_def":
                    raise StatusError(
                        Code.INVALID_ARGUMENT, f"Metadata field {field} is not supported"
                    )
            with self._manager.acquire(request.model_spec) as servable:
                return metadata(servable)

        return _answer(context, call)


class ModelService(model_service_pb2_grpc.ModelServiceServicer):
    """States of the versions that `manager` serves."""

    def __init__(self, manager: ModelManager[Servable]):
        self._manager = manager

    def GetModelStatus(
        self,
        request: get_model_status_pb2.GetModelStatusRequest,
        context: grpc.ServicerContext,
    ) -> get_model_status_pb2.GetModelStatusResponse:
        """State of one version, or of all."""

        def call() -> get_model_status_pb2.GetModelStatusResponse:
            if not request.HasField("model_spec"):
                raise StatusError(Code.INVALID_ARGUMENT, "Missing ModelSpec")
            return get_model_status_pb2.GetModelStatusResponse(
                model_version_status=self._manager.status(request.model_spec)
            )

        return _answer(context, call)
