"""The whole server, put together from its flags."""

import argparse
import logging
import os
import re
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path

import grpc
from google.protobuf.message import Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from serving.client.protobuf import message
from serving.savedmodel.status import StatusError, invalid
from serving.server import addresses, config_files
from serving.server.api import Api
from serving.server.batching import BatchScheduler
from serving.server.event_loop import EventLoop
from serving.server.flags import MOST_INT
from serving.server.grpc_services import Services
from serving.server.loading import Loader
from serving.server.manager import ModelManager
from serving.server.models import State
from serving.server.monitoring import Metrics
from serving.server.request_log import RequestLog
from serving.server.rest import RestApp
from serving.server.rest_server import RestServer
from serving.server.servable import Batchers, Servable
from serving.server.tls import server_credentials
from serving.server.warmup import warm_up
from serving.server.workers import Pools

# Requests that run at once; heavy ones (long texts, many rows) have places of their own.
_USUAL = 64
_HEAVY = max(1, (os.cpu_count() or 1) // 2)
_HEAVY_WAITING = 16
_LOOK_AGAIN_SECONDS = 1
# Limits of gRPC. Reset streams stay in its bounded queue for a while. Without a limit for each
# connection, one connection can fill the queue, and calls of others are cancelled.
_MOST_CONNECTIONS = 1024
_MOST_STREAMS = 200
_MOST_PENDING = 20 * _MOST_STREAMS  # 13 kB each

log = logging.getLogger(__name__)


class ModelServer:
    """The server that the flags describe.

    `start` returns when every model is available and the ports are open, or when `stop` was set
    meanwhile. It raises StatusError or OSError if it cannot serve; wrong flags, addresses and
    certificates are found before a model is loaded.

    Attributes:
        port, rest_port: the ports, once started.
    """

    def __init__(self, arguments: argparse.Namespace, stop: threading.Event | None = None):
        self._arguments = arguments
        self._stop = stop or threading.Event()
        self._metrics = Metrics()
        waiting = arguments.max_waiting_requests
        # With batching, requests wait in batches, and a thread waits for each.
        usual = (_USUAL + waiting, 0) if arguments.enable_batching else (_USUAL, waiting)
        self._pools = Pools(usual, (_HEAVY, _HEAVY_WAITING))
        self._batchers: Batchers | None = None
        self._loader = Loader(arguments)
        self._manager = ModelManager(
            self._load, arguments.allow_version_labels_for_unavailable_models, self._note_state
        )
        # Load on one protocol must not delay the other.
        self._grpc_loop: EventLoop | None = None
        self._rest_loop: EventLoop | None = None
        self._grpc: grpc.aio.Server | None = None
        self._rest: RestServer | None = None
        self._health = health.aio.HealthServicer()
        self._config_poller: threading.Thread | None = None
        self.port = self.rest_port = 0

    def start(self) -> None:
        """Load the models, then open the ports."""
        arguments = self._arguments
        metrics_path = config_files.read_metrics_path(arguments.monitoring_config_file)
        options = _channel_arguments(arguments.grpc_channel_arguments)
        if arguments.enable_batching:
            parameters = config_files.read_batching(arguments.batching_parameters_file)
            alone = replace(parameters, num_batch_threads=_HEAVY)
            self._batchers = Batchers(
                BatchScheduler(parameters, self._metrics), BatchScheduler(alone, self._metrics)
            )
        elif arguments.batching_parameters_file:
            raise invalid(
                "--batching_parameters_file is set without setting --enable_batching to true.",
            )
        if arguments.rest_api_port and arguments.rest_api_port == arguments.port:
            raise invalid("--rest_api_port cannot be same as --port.")
        credentials = None
        if arguments.ssl_config_file:
            credentials = server_credentials(arguments.ssl_config_file)
        if arguments.grpc_socket_path:
            addresses.check_socket_path(arguments.grpc_socket_path)
        models = self._models()
        rest_socket: socket.socket | None = None
        with addresses.claim(arguments.host, arguments.port) as grpc_socket:
            if arguments.rest_api_port:
                rest_socket = addresses.claim(arguments.host, arguments.rest_api_port)
            try:
                self._manager.configure(models, wait=lambda: self._stop.wait(_LOOK_AGAIN_SECONDS))
                if self._stop.is_set():
                    return
                self._poll()
                self._read_gauges()
                log_form = arguments.request_log
                api = Api(
                    self._manager,
                    self._metrics,
                    RequestLog(log_form),
                    arguments.enable_signature_method_name_check,
                )
                port = grpc_socket.getsockname()[1]
                self._grpc_loop = EventLoop("grpc")
                self._grpc_loop.start(self._open_grpc(api, port, options, credentials)).result()
                if rest_socket:
                    self._rest_loop = EventLoop("rest")
                    opened = self._open_rest(api, rest_socket, metrics_path)
                    self._rest_loop.start(opened).result()
                    rest_socket = None
            finally:
                if rest_socket:
                    rest_socket.close()

    def close(self) -> None:
        """Refuse new requests, let running ones end within the grace, and free the models."""
        self._stop.set()
        deadline = time.monotonic() + self._arguments.shutdown_grace_seconds
        stops = []
        if self._grpc_loop and self._grpc:
            stops.append(self._grpc_loop.start(self._close_grpc(self._grpc)))
        if self._rest_loop and self._rest:
            stops.append(self._rest_loop.start(self._rest.stop()))
        for stop in stops:
            stop.result()
        self._pools.close()
        self._manager.close(max(0.0, deadline - time.monotonic()))
        for batcher in self._batchers or ():
            batcher.close()
        for loop in (self._grpc_loop, self._rest_loop):
            if loop:
                loop.close()
        if self._config_poller:
            self._config_poller.join(1)

    @property
    def busy(self) -> int:
        """The number of requests that run."""
        return self._pools.busy

    async def _close_grpc(self, server: grpc.aio.Server) -> None:
        await self._health.enter_graceful_shutdown()
        await server.stop(self._arguments.shutdown_grace_seconds)

    def _load(self, name: str, version: int, path: Path) -> Servable:
        servable = Servable(
            name,
            version,
            self._loader.load(path),
            self._metrics,
            self._batchers,
            self._arguments.max_request_rows,
        )
        if self._arguments.enable_model_warmup:
            try:
                warm_up(servable, path, self._metrics)
            except StatusError:
                servable.close()
                raise
        return servable

    def _models(self) -> Message:
        arguments = self._arguments
        if arguments.model_config_file:
            return _model_list(arguments.model_config_file)
        config = message("ModelConfigList")()
        config.config.add(
            name=arguments.model_name,
            base_path=str(arguments.model_base_path.resolve()),
            model_platform="tensorflow",
        )
        return config

    def _poll(self) -> None:
        arguments = self._arguments
        if arguments.file_system_poll_wait_seconds:
            self._manager.start_polling(arguments.file_system_poll_wait_seconds)
        if arguments.model_config_file and arguments.model_config_file_poll_wait_seconds:
            self._config_poller = threading.Thread(
                target=self._poll_config, name="config-poll", daemon=True
            )
            self._config_poller.start()

    def _poll_config(self) -> None:
        path = self._arguments.model_config_file
        while not self._stop.wait(self._arguments.model_config_file_poll_wait_seconds):
            try:
                self._manager.configure(_model_list(path))
            except (StatusError, OSError) as error:
                log.error("Reading %s again failed: %s", path, error)

    def _note_state(self, name: str, version: int, state: int) -> None:
        labels = {"model_name": name, "version": str(version)}
        loaded = 1 if state == State.AVAILABLE else None
        self._metrics.set("model_version_loaded", loaded, **labels)
        if state == State.END:
            self._metrics.set("model_last_load_error_time", time.time(), **labels)

    def _read_gauges(self) -> None:
        self._metrics.read("requests_in_flight", lambda: self._pools.busy)
        lines = (self._pools, *(self._batchers or ()))
        self._metrics.read("requests_queued", lambda: sum(line.waiting for line in lines))

    async def _open_grpc(
        self,
        api: Api,
        port: int,
        options: dict[str, int | str],
        credentials: grpc.ServerCredentials | None,
    ) -> None:
        arguments = self._arguments
        usual = {
            "grpc.max_receive_message_length": arguments.max_request_bytes,
            "grpc.max_send_message_length": -1,
            "grpc.so_reuseport": 0,
            "grpc.max_allowed_incoming_connections": _MOST_CONNECTIONS,
            "grpc.max_concurrent_streams": _MOST_STREAMS,
            "grpc.server.max_pending_requests": _MOST_PENDING,
            "grpc.server.max_pending_requests_hard_limit": 2 * _MOST_PENDING,
        }
        # If gRPC gets an argument twice, the first counts.
        self._grpc = grpc.aio.server(options=tuple((usual | options).items()))
        services = Services(api, self._pools, arguments.enable_reload_config)
        self._grpc.add_generic_rpc_handlers(services.handlers())
        if arguments.enable_grpc_healthcheck_service:
            health_pb2_grpc.add_HealthServicer_to_server(self._health, self._grpc)
            for service in ("", "PredictionService", "ModelService"):
                name = f"tensorflow.serving.{service}" if service else ""
                await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        self.port = self._listen(addresses.text(arguments.host, port), credentials)
        if arguments.grpc_socket_path:
            self._listen(f"unix:{arguments.grpc_socket_path}", credentials)
        await self._grpc.start()
        log.info("Running gRPC ModelServer at %s:%d ...", arguments.host, self.port)

    async def _open_rest(self, api: Api, listening: socket.socket, metrics: str | None) -> None:
        arguments = self._arguments
        app = RestApp(
            api,
            self._pools,
            arguments.rest_api_timeout_in_ms,
            metrics,
            arguments.max_request_bytes,
        )
        self._rest = RestServer(app, listening, arguments.shutdown_grace_seconds)
        self.rest_port = listening.getsockname()[1]
        await self._rest.start()
        log.info("Exporting HTTP/REST API at:%s:%d ...", arguments.host, self.rest_port)

    def _listen(self, address: str, credentials: grpc.ServerCredentials | None) -> int:
        assert self._grpc is not None
        try:
            if credentials is None:
                return self._grpc.add_insecure_port(address)
            return self._grpc.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address}: is it in use?") from error


def _model_list(path: Path) -> Message:
    config = config_files.read_models(path)
    if config.WhichOneof("config") != "model_config_list":
        raise invalid(f"Expected a model_config_list in '{path}', and it has none")
    return config.model_config_list


def _channel_arguments(text: str) -> dict[str, int | str]:
    found: dict[str, int | str] = {}
    for argument in filter(None, text.split(",")):
        key, equals, value = argument.partition("=")
        if not equals:
            raise invalid(
                f"--grpc_channel_arguments: expected key=value. Received: {argument!r}",
            )
        is_number = re.fullmatch("-?[0-9]+", value)
        if is_number and (len(value) > 11 or abs(int(value)) > MOST_INT):
            raise invalid(
                f"--grpc_channel_arguments: expected {key} of 32 bits. Received: {value[:40]}",
            )
        found[key] = int(value) if is_number else value
    return found
