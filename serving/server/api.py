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

from serving.savedmodel.status import Code, StatusError
from serving.server import examples
from serving.server.call import Call
from serving.server.manager import ModelManager
from serving.server.monitoring import Metrics
from serving.server.predict import metadata, predict
from serving.server.request_log import RequestLog
from serving.server.servable import Servable

T = TypeVar("T")


class Api:
    """The two services' methods; each raises StatusError.

    Args:
        manager: of the models.
        metrics: where requests are counted.
        request_log: where they are written.
        check_method_names: refuse signatures whose method name is not what is asked for.
    """

    def __init__(
        self,
        manager: ModelManager[Servable],
        metrics: Metrics,
        request_log: RequestLog | None = None,
        check_method_names: bool = False,
    ):
        self.manager = manager
        self.metrics = metrics
        self._request_log = request_log or RequestLog()
        self._check_method_names = check_method_names

    def predict(
        self, request: predict_pb2.PredictRequest, call: Call
    ) -> predict_pb2.PredictResponse:
        """Run any signature."""
        spec = request.model_spec
        strict = self._check_method_names
        return self.infer(
            lambda servable: predict(servable, request, call, strict), spec, call, "Predict"
        )

    def classify(
        self, request: classification_pb2.ClassificationRequest, call: Call
    ) -> classification_pb2.ClassificationResponse:
        """Run a classification signature."""
        strict = self._check_method_names
        return self.infer(
            lambda servable: examples.classify(servable, request, call, strict),
            request.model_spec,
            call,
            "Classify",
        )

    def regress(
        self, request: regression_pb2.RegressionRequest, call: Call
    ) -> regression_pb2.RegressionResponse:
        """Run a regression signature."""
        strict = self._check_method_names
        return self.infer(
            lambda servable: examples.regress(servable, request, call, strict),
            request.model_spec,
            call,
            "Regress",
        )

    def multi_inference(
        self, request: inference_pb2.MultiInferenceRequest, call: Call
    ) -> inference_pb2.MultiInferenceResponse:
        """Run several classification and regression signatures on the same examples."""
        if not request.tasks:
            raise StatusError(Code.INVALID_ARGUMENT, "Inference request contains no tasks.")
        strict = self._check_method_names
        return self.infer(
            lambda servable: examples.multi_inference(servable, request, call, strict),
            request.tasks[0].model_spec,
            call,
            "MultiInference",
        )

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

    def count_rejection(self, error: StatusError, call: Call) -> None:
        """Count a request that failed because there are too many."""
        if error.code == Code.RESOURCE_EXHAUSTED:
            self.metrics.count("requests_rejected", entrypoint=call.entrypoint)

    def infer(
        self,
        answer: Callable[[Servable], T],
        spec: model_pb2.ModelSpec,
        call: Call,
        method: str,
    ) -> T:
        """`answer(servable)` of the version that `spec` names; counted, timed and logged."""
        started = time.perf_counter()
        status = Code.OK
        try:
            call.check()
            with self.manager.acquire(spec) as servable:
                return answer(servable)
        except StatusError as error:
            status = error.code
            raise
        except Exception:
            status = Code.INTERNAL
            raise
        finally:
            took = time.perf_counter() - started
            # Strangers may ask for any name: only those of the configuration become labels.
            name = spec.name if self.manager.knows(spec.name) else ""
            self.metrics.count("request_count", model_name=name, status=status.name)
            self.metrics.observe(
                "request_latency",
                took,
                model_name=name,
                API=method,
                entrypoint=call.entrypoint,
                status=status.name,
            )
            self._request_log.write(call, method, spec.name, status.name, took)
