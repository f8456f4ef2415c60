"""What the server answers, whichever protocol asks: gRPC and REST both stand on this."""

import time
from collections.abc import Callable
from typing import TypeVar

from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    model_pb2,
    predict_pb2,
    regression_pb2,
)

from serving.model_server import examples
from serving.model_server.manager import ModelManager
from serving.model_server.metrics import Metrics
from serving.model_server.predict import metadata, predict
from serving.model_server.servable import Servable
from serving.status import Code, StatusError

T = TypeVar("T")


class Api:
    """The two services' methods; each raises StatusError.

    Args:
        manager: of the models.
        metrics: where requests are counted.
    """

    def __init__(self, manager: ModelManager[Servable], metrics: Metrics):
        self.manager = manager
        self.metrics = metrics

    def predict(
        self, request: predict_pb2.PredictRequest, timeout_ms: int, entrypoint: str
    ) -> predict_pb2.PredictResponse:
        """Run any signature."""
        return self._infer(predict, request.model_spec, request, timeout_ms, entrypoint, "Predict")

    def classify(
        self, request: classification_pb2.ClassificationRequest, timeout_ms: int, entrypoint: str
    ) -> classification_pb2.ClassificationResponse:
        """Run a classification signature."""
        spec = request.model_spec
        return self._infer(examples.classify, spec, request, timeout_ms, entrypoint, "Classify")

    def regress(
        self, request: regression_pb2.RegressionRequest, timeout_ms: int, entrypoint: str
    ) -> regression_pb2.RegressionResponse:
        """Run a regression signature."""
        spec = request.model_spec
        return self._infer(examples.regress, spec, request, timeout_ms, entrypoint, "Regress")

    def multi_inference(
        self, request: inference_pb2.MultiInferenceRequest, timeout_ms: int, entrypoint: str
    ) -> inference_pb2.MultiInferenceResponse:
        """Run several classification and regression signatures on the same examples."""
        if not request.tasks:
            raise StatusError(Code.INVALID_ARGUMENT, "Inference request contains no tasks.")
        spec = request.tasks[0].model_spec
        infer = examples.multi_inference
        return self._infer(infer, spec, request, timeout_ms, entrypoint, "MultiInference")

    def get_model_metadata(
        self, request: get_model_metadata_pb2.GetModelMetadataRequest
    ) -> get_model_metadata_pb2.GetModelMetadataResponse:
        """The signatures of a model version."""
        if not request.HasField("model_spec"):
            raise StatusError(Code.INVALID_ARGUMENT, "Missing ModelSpec")
        if not request.metadata_field:
            raise StatusError(
                Code.INVALID_ARGUMENT,
                "GetModelMetadataRequest must specify at least one metadata_field",
            )
        for field in request.metadata_field:
            if field != "signature_def":
                raise StatusError(Code.INVALID_ARGUMENT, f"Metadata field {field} is not supported")
        with self.manager.acquire(request.model_spec) as servable:
            return metadata(servable)

    def get_model_status(
        self, request: get_model_status_pb2.GetModelStatusRequest
    ) -> get_model_status_pb2.GetModelStatusResponse:
        """State of one version of a model, or of all."""
        if not request.HasField("model_spec"):
            raise StatusError(Code.INVALID_ARGUMENT, "Missing ModelSpec")
        return get_model_status_pb2.GetModelStatusResponse(
            model_version_status=self.manager.status(request.model_spec)
        )

    def reload_config(self, request: model_management_pb2.ReloadConfigRequest) -> None:
        """Serve the models of another configuration."""
        if request.config.WhichOneof("config") != "model_config_list":
            raise StatusError(
                Code.INVALID_ARGUMENT,
                "ServerModelConfig type not supported by HandleReloadConfigRequest. Only "
                "ModelConfigList is currently supported",
            )
        self.manager.configure(request.config.model_config_list)

    def _infer(
        self,
        infer: Callable[..., T],
        spec: model_pb2.ModelSpec,
        request: object,
        timeout_ms: int,
        entrypoint: str,
        api: str,
    ) -> T:
        started = time.perf_counter()
        status = "OK"
        try:
            with self.manager.acquire(spec) as servable:
                return infer(servable, request, timeout_ms)
        except StatusError as error:
            status = error.code.name
            raise
        finally:
            took = time.perf_counter() - started
            self.metrics.count("request_count", model_name=spec.name, status=status)
            self.metrics.observe(
                "request_latency",
                took,
                model_name=spec.name,
                API=api,
                entrypoint=entrypoint,
                status=status,
            )
