"""PredictionService and ModelService over gRPC."""

import logging
from collections.abc import Callable
from typing import TypeVar

import grpc
from google.protobuf.message import Message
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

from serving.model_server.api import Api
from serving.status import Code, StatusError

_CODES = {code.value[0]: code for code in grpc.StatusCode}
_MAX_MESSAGE = 1024
_FOREVER_MS = 2**31

log = logging.getLogger(__name__)
Response = TypeVar("Response", bound=Message)


def _shortened(message: str) -> str:
    return message if len(message) <= _MAX_MESSAGE else message[:_MAX_MESSAGE] + "...TRUNCATED"


def _timeout_ms(context: grpc.ServicerContext) -> int:
    """Milliseconds left for the request; 0 where it has no deadline.

    Raises StatusError where nobody waits for the answer any more.
    """
    if not context.is_active():
        raise StatusError(Code.CANCELLED, "The client has gone")
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
    """tensorflow.serving.PredictionService."""

    def __init__(self, api: Api):
        self._api = api

    def Predict(
        self, request: predict_pb2.PredictRequest, context: grpc.ServicerContext
    ) -> predict_pb2.PredictResponse:
        """See `Api.predict`."""
        return self._infer(self._api.predict, request, context)

    def Classify(
        self, request: classification_pb2.ClassificationRequest, context: grpc.ServicerContext
    ) -> classification_pb2.ClassificationResponse:
        """See `Api.classify`."""
        return self._infer(self._api.classify, request, context)

    def Regress(
        self, request: regression_pb2.RegressionRequest, context: grpc.ServicerContext
    ) -> regression_pb2.RegressionResponse:
        """See `Api.regress`."""
        return self._infer(self._api.regress, request, context)

    def MultiInference(
        self, request: inference_pb2.MultiInferenceRequest, context: grpc.ServicerContext
    ) -> inference_pb2.MultiInferenceResponse:
        """See `Api.multi_inference`."""
        return self._infer(self._api.multi_inference, request, context)

    def GetModelMetadata(
        self,
        request: get_model_metadata_pb2.GetModelMetadataRequest,
        context: grpc.ServicerContext,
    ) -> get_model_metadata_pb2.GetModelMetadataResponse:
        """See `Api.get_model_metadata`."""
        return _answer(context, lambda: self._api.get_model_metadata(request))

    @staticmethod
    def _infer(
        infer: Callable[..., Response], request: Message, context: grpc.ServicerContext
    ) -> Response:
        return _answer(context, lambda: infer(request, _timeout_ms(context), "GRPC"))


class ModelService(model_service_pb2_grpc.ModelServiceServicer):
    """tensorflow.serving.ModelService."""

    def __init__(self, api: Api):
        self._api = api

    def GetModelStatus(
        self, request: get_model_status_pb2.GetModelStatusRequest, context: grpc.ServicerContext
    ) -> get_model_status_pb2.GetModelStatusResponse:
        """See `Api.get_model_status`."""
        return _answer(context, lambda: self._api.get_model_status(request))

    def HandleReloadConfigRequest(
        self, request: model_management_pb2.ReloadConfigRequest, context: grpc.ServicerContext
    ) -> model_management_pb2.ReloadConfigResponse:
        """See `Api.reload_config`."""

        def call() -> model_management_pb2.ReloadConfigResponse:
            self._api.reload_config(request)
            response = model_management_pb2.ReloadConfigResponse()
            response.status.error_code = Code.OK
            return response

        return _answer(context, call)
