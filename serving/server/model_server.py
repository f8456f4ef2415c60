"""The whole server, put together from its flags."""

import argparse
import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import grpc
import uvicorn
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from serving.savedmodel.status import StatusError, invalid
from serving.server import config_files
from serving.server.batching import Batcher
from serving.server.calls import Metrics, Workers
from serving.server.manager import ModelManager
from serving.server.predict import Servable, load
from serving.server.rest import Rest
from serving.server.service import Service

_THREADS = 64
_MOST_CONNECTIONS = 1024
_MOST_HEAD_BYTES = 2**14

T = TypeVar("T")
log = logging.getLogger(__name__)


class ModelServer:
    """The server that the flags describe.

    `start` returns when every model is available and the ports are open, or when `stop` was set
    meanwhile. It raises StatusError or OSError if it cannot serve; wrong flags, addresses and
    certificates are found before a model is loaded.

    Attributes:
        port, rest_port: the ports, once started.
        manager: of the models.
        metrics: of the requests.
    """

    def __init__(self, arguments: argparse.Namespace, stop: threading.Event | None = None):
        self._arguments = arguments
        self._stop = stop or threading.Event()
        self.metrics = Metrics()
        self.manager = ModelManager(self._load, self.metrics)
        self._workers = Workers(_THREADS, arguments.max_waiting_requests)
        self.metrics.in_flight.set_function(lambda: self._workers.busy)
        self._service = Service(
            self.manager, self.metrics, self._workers, arguments.max_request_seconds
        )
        self._batcher: Batcher | None = None
        self._loop = asyncio.new_event_loop()
        self._loop_thread = threading.Thread(target=self._loop.run_forever, name="requests")
        self._grpc: grpc.aio.Server | None = None
        self._rest: uvicorn.Server | None = None
        self._rest_task: asyncio.Task[None] | None = None
        self.port = self.rest_port = 0

    def start(self) -> None:
        """Load the models, then open the ports."""
        arguments = self._arguments
        metrics_path = config_files.read_metrics_path(arguments.monitoring_config_file)
        parameters = config_files.read_batching(arguments.batching_parameters_file)
        if arguments.enable_batching:
            self._batcher = Batcher(parameters, self.metrics)
        elif arguments.batching_parameters_file:
            raise invalid("--batching_parameters_file is given without --enable_batching")
        if arguments.rest_api_port and arguments.rest_api_port == arguments.port:
            raise invalid("--rest_api_port cannot be same as --port.")
        credentials = None
        if arguments.ssl_config_file:
            credentials = config_files.read_credentials(arguments.ssl_config_file)
        configs = self._configs()
        with _claim(arguments.host, arguments.port) as claimed:
            rest_socket = None
            if arguments.rest_api_port:
                rest_socket = _claim(arguments.host, arguments.rest_api_port)
            try:
                self.manager.start(configs, self._stop)
                if self._stop.is_set():
                    return
                self._loop_thread.start()
                self._run(self._open_grpc(claimed.getsockname()[1], credentials))
                if rest_socket:
                    self._run(self._open_rest(rest_socket, metrics_path))
                    rest_socket = None
            finally:
                if rest_socket:
                    rest_socket.close()
        self._every(arguments.file_system_poll_wait_seconds, self.manager.scan)
        if arguments.model_config_file:
            seconds = arguments.model_config_file_poll_wait_seconds
            self._every(seconds, lambda: self.manager.configure(self._configs()))

    def close(self) -> None:
        """Refuse new requests, let running ones end within the grace, and free the models."""
        self._stop.set()
        deadline = time.monotonic() + self._arguments.shutdown_grace_seconds
        if self._loop_thread.is_alive():
            self._run(self._close_ports())
        self._workers.close()
        self.manager.close(max(0.0, deadline - time.monotonic()))
        if self._loop_thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop_thread.join()
        self._loop.close()

    @property
    def busy(self) -> int:
        """The number of requests that run or wait."""
        return self._workers.busy

    def _load(self, name: str, version: int, path: Path) -> Servable:
        arguments = self._arguments
        model = load(
            path,
            arguments.tensorflow_inter_op_parallelism,
            arguments.tensorflow_intra_op_parallelism,
            arguments.max_request_seconds,
        )
        rows = arguments.max_request_rows
        return Servable(name, version, model, self.metrics, self._batcher, rows)

    def _configs(self) -> Sequence[Any]:
        arguments = self._arguments
        if arguments.model_config_file:
            return config_files.read_models(arguments.model_config_file)
        return [config_files.one_model(arguments.model_name, arguments.model_base_path)]

    def _every(self, seconds: float, action: Callable[[], None]) -> None:
        """Run `action` every so many seconds until the end; 0 is never."""

        def repeat() -> None:
            while not self._stop.wait(seconds):
                try:
                    action()
                except (StatusError, OSError) as error:
                    log.error("The configuration stays as it is: %s", error)

        if seconds:
            threading.Thread(target=repeat, name="poll", daemon=True).start()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`, run in the event loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open_grpc(self, port: int, credentials: grpc.ServerCredentials | None) -> None:
        arguments = self._arguments
        options = {
            "grpc.max_receive_message_length": arguments.max_request_bytes,
            "grpc.max_send_message_length": -1,
            "grpc.so_reuseport": 0,
            "grpc.max_allowed_incoming_connections": _MOST_CONNECTIONS,
        }
        self._grpc = grpc.aio.server(options=list(options.items()))
        self._grpc.add_generic_rpc_handlers(self._service.handlers())
        if arguments.enable_grpc_healthcheck_service:
            servicer = health.aio.HealthServicer()
            health_pb2_grpc.add_HealthServicer_to_server(servicer, self._grpc)
            for service in ("", "PredictionService", "ModelService"):
                name = f"tensorflow.serving.{service}" if service else ""
                await servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
        host = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
        self.port = self._listen(f"{host}:{port}", credentials)
        if arguments.grpc_socket_path:
            self._listen(f"unix:{arguments.grpc_socket_path}", credentials)
        await self._grpc.start()
        log.info("Running gRPC ModelServer at %s:%d ...", arguments.host, self.port)

    def _listen(self, address: str, credentials: grpc.ServerCredentials | None) -> int:
        assert self._grpc
        try:
            if credentials is None:
                return self._grpc.add_insecure_port(address)
            return self._grpc.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address}: {error}") from error

    async def _open_rest(self, listening: socket.socket, metrics_path: str | None) -> None:
        arguments = self._arguments
        rest = Rest(
            self._service, arguments.rest_api_timeout_in_ms / 1000, arguments.max_request_bytes
        )
        self._rest = uvicorn.Server(
            uvicorn.Config(
                rest.app(metrics_path),
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                limit_concurrency=_MOST_CONNECTIONS,
                h11_max_incomplete_event_size=_MOST_HEAD_BYTES,
                timeout_graceful_shutdown=arguments.shutdown_grace_seconds,
            )
        )
        self.rest_port = listening.getsockname()[1]
        self._rest_task = asyncio.create_task(self._rest.serve([listening]))
        while not self._rest.started and not self._rest_task.done():
            await asyncio.sleep(0.01)
        log.info("Exporting HTTP/REST API at:%s:%d ...", arguments.host, self.rest_port)

    async def _close_ports(self) -> None:
        """Take no new requests; return when those under way have ended, or after the grace."""
        ends: list[Any] = []
        if self._grpc:
            ends.append(self._grpc.stop(self._arguments.shutdown_grace_seconds))
        if self._rest and self._rest_task:
            self._rest.should_exit = True
            ends.append(self._rest_task)
        await asyncio.gather(*ends)


def _claim(host: str, port: int) -> socket.socket:
    """A socket bound to the address, on which nothing listens yet; gRPC binds it again.

    Raises OSError with one line, where the address cannot be had.
    """
    claimed = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        claimed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        claimed.bind((host, port))
    except (OSError, UnicodeError) as error:
        claimed.close()
        raise OSError(f"cannot listen on {host}:{port}: {error}") from error
    return claimed
