"""The server as a whole: what its flags ask for, put together."""

import argparse
import logging
import threading
from concurrent import futures
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from tensorflow.core.protobuf import config_pb2
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc
from tensorflow_serving.config import model_server_config_pb2

from serving.model_server import config_files
from serving.model_server.api import Api
from serving.model_server.batching import BatchScheduler
from serving.model_server.grpc_services import ModelService, PredictionService
from serving.model_server.manager import ModelManager
from serving.model_server.metrics import Metrics
from serving.model_server.rest import RestApp, RestServer
from serving.model_server.servable import Servable, Slots
from serving.model_server.warmup import warm_up
from serving.status import Code, StatusError

# Requests that may wait, each in a thread, and that may run; status requests do not wait.
_WORKERS = 1024
_RUNS = 64
_GRACE_SECONDS = 30
_LOOK_AGAIN_SECONDS = 1

log = logging.getLogger(__name__)


class ModelServer:
    """The server that the flags describe.

    `start` returns when every model is available and the ports are open, or, without effect, when
    `stop` was set meanwhile. It raises StatusError or OSError where it cannot serve.

    Attributes:
        port, rest_port: where it listens, once started.
    """

    def __init__(self, arguments: argparse.Namespace, stop: threading.Event | None = None):
        self._arguments = arguments
        self._stop = stop or threading.Event()
        self._metrics = Metrics()
        self._runner: BatchScheduler | Slots = Slots(_RUNS)
        self._manager = ModelManager[Servable](
            self._load, arguments.allow_version_labels_for_unavailable_models
        )
        self._grpc: grpc.Server | None = None
        self._rest: RestServer | None = None
        self._health = health.HealthServicer()
        self._config_poller: threading.Thread | None = None
        self.port = self.rest_port = 0

    def start(self) -> None:
        """Load the models, then open the ports."""
        arguments = self._arguments
        metrics_path = config_files.read_metrics_path(arguments.monitoring_config_file)
        if arguments.enable_batching:
            parameters = config_files.read_batching(arguments.batching_parameters_file)
            self._runner = BatchScheduler(parameters, self._metrics)
        elif arguments.batching_parameters_file:
            raise StatusError(
                Code.INVALID_ARGUMENT,
                "--batching_parameters_file is set without setting --enable_batching to true.",
            )
        if arguments.rest_api_port and arguments.rest_api_port == arguments.port:
            raise StatusError(Code.INVALID_ARGUMENT, "--rest_api_port cannot be same as --port.")
        self._manager.configure(self._models(), wait=lambda: self._stop.wait(_LOOK_AGAIN_SECONDS))
        if self._stop.is_set():
            return
        if arguments.file_system_poll_wait_seconds:
            self._manager.start_polling(arguments.file_system_poll_wait_seconds)
        if arguments.model_config_file and arguments.model_config_file_poll_wait_seconds:
            self._config_poller = threading.Thread(
                target=self._poll_config, name="config-poll", daemon=True
            )
            self._config_poller.start()
        api = Api(self._manager, self._metrics)
        self._open_grpc(api)
        if arguments.rest_api_port:
            app = RestApp(api, arguments.rest_api_timeout_in_ms, metrics_path)
            self._rest = RestServer(app, arguments.host, arguments.rest_api_port)
            self.rest_port = self._rest.port
            log.info("Exporting HTTP/REST API at:%s:%d ...", arguments.host, self.rest_port)

    def close(self) -> None:
        """Take no new requests, let those under way end, free the models."""
        self._stop.set()
        self._health.enter_graceful_shutdown()
        stopped = self._grpc.stop(_GRACE_SECONDS) if self._grpc else None
        if self._rest:
            self._rest.close(_GRACE_SECONDS)
        if stopped:
            stopped.wait()
        if self._config_poller:
            self._config_poller.join()
        if isinstance(self._runner, BatchScheduler):
            self._runner.close()
        self._manager.close()

    def _load(self, name: str, version: int, path: Path) -> Servable:
        tags = self._arguments.saved_model_tags.split(",")
        config = config_pb2.ConfigProto(
            inter_op_parallelism_threads=self._arguments.tensorflow_inter_op_parallelism,
            intra_op_parallelism_threads=self._arguments.tensorflow_intra_op_parallelism,
        )
        servable = Servable(name, version, path, self._metrics, self._runner, tags, config)
        if self._arguments.enable_model_warmup:
            try:
                warm_up(servable, path, self._metrics)
            except StatusError:
                servable.close()
                raise
        return servable

    def _models(self) -> model_server_config_pb2.ModelConfigList:
        arguments = self._arguments
        if arguments.model_config_file:
            return _model_list(arguments.model_config_file)
        config = model_server_config_pb2.ModelConfigList()
        config.config.add(
            name=arguments.model_name,
            base_path=str(arguments.model_base_path.resolve()),
            model_platform="tensorflow",
        )
        return config

    def _poll_config(self) -> None:
        path = self._arguments.model_config_file
        while not self._stop.wait(self._arguments.model_config_file_poll_wait_seconds):
            try:
                self._manager.configure(_model_list(path))
            except (StatusError, OSError) as error:
                log.error("Reading %s again failed: %s", path, error)

    def _open_grpc(self, api: Api) -> None:
        arguments = self._arguments
        self._grpc = grpc.server(
            futures.ThreadPoolExecutor(_WORKERS, thread_name_prefix="request"),
            options=[
                ("grpc.max_receive_message_length", -1),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),
                *_channel_arguments(arguments.grpc_channel_arguments),
            ],
        )
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
            PredictionService(api), self._grpc
        )
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(ModelService(api), self._grpc)
        if arguments.enable_grpc_healthcheck_service:
            health_pb2_grpc.add_HealthServicer_to_server(self._health, self._grpc)
            for service in ("", "PredictionService", "ModelService"):
                name = f"tensorflow.serving.{service}" if service else ""
                self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        credentials = _credentials(arguments.ssl_config_file)
        self.port = self._listen(f"{arguments.host}:{arguments.port}", credentials)
        if arguments.grpc_socket_path:
            self._listen(f"unix:{arguments.grpc_socket_path}", credentials)
        self._grpc.start()
        log.info("Running gRPC ModelServer at %s:%d ...", arguments.host, self.port)

    def _listen(self, address: str, credentials: grpc.ServerCredentials | None) -> int:
        try:
            if credentials is None:
                return self._grpc.add_insecure_port(address)
            return self._grpc.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise OSError(
                f"cannot listen on {address}: is it in use, or a certificate not valid?"
            ) from error


def _model_list(path: Path) -> model_server_config_pb2.ModelConfigList:
    config = config_files.read_models(path)
    if config.WhichOneof("config") != "model_config_list":
        raise StatusError(
            Code.INVALID_ARGUMENT, f"Expected a model_config_list in '{path}', and it has none"
        )
    return config.model_config_list


def _channel_arguments(text: str) -> list[tuple[str, int | str]]:
    found: list[tuple[str, int | str]] = []
    for argument in filter(None, text.split(",")):
        key, equals, value = argument.partition("=")
        if not equals:
            raise StatusError(
                Code.INVALID_ARGUMENT,
                f"--grpc_channel_arguments: expected key=value, received {argument!r}",
            )
        found.append((key, int(value) if value.lstrip("-").isdecimal() else value))
    return found


def _credentials(path: Path | None) -> grpc.ServerCredentials | None:
    if path is None:
        return None
    config = config_files.read_ssl(path)
    return grpc.ssl_server_credentials(
        [(config.server_key.encode(), config.server_cert.encode())],
        root_certificates=config.custom_ca.encode() or None,
        require_client_auth=config.client_verify,
    )
