"""Builds the whole server from its flags: ports, threads, polling and shutdown."""

import argparse
import asyncio
import errno
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from typing import Any

import grpc
import uvicorn
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from uvicorn.protocols.http.h11_impl import H11Protocol

from serving.api._http import host_names
from serving.client import serving_pb2
from serving.loaded._load import load
from serving.loaded._status import invalid
from serving.server import _settings as settings
from serving.server._calls import THREADS, Metrics, Workers
from serving.server._models import Models
from serving.server._service import GrpcMethods, Rest, Service
from serving.server._tensors import Limits

_MOST_CONNECTIONS, _MOST_HEAD_BYTES = 1024, 2**14
# Time for one read of a connection, above which its next read is smaller; sizes of reads in bytes.
_TURN_SECONDS, _LEAST_READ, _MOST_READ = 0.0005, 2**8, 2**18

_log = logging.getLogger(__name__)


class _Http(H11Protocol):
    """Reads fewer bytes at a time if parsing is slow (tiny chunks), so that others get a turn."""

    def connection_made(self, transport: Any) -> None:
        self.reads, transport.max_size = transport, _LEAST_READ
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        started = time.thread_time()
        super().data_received(data)
        is_slow = time.thread_time() - started > _TURN_SECONDS
        size = self.reads.max_size // 2 if is_slow else self.reads.max_size * 2
        self.reads.max_size = min(max(size, _LEAST_READ), _MOST_READ)


class ModelServer:
    """The server that the flags describe.

    `start` returns when every model is available and the ports are open, or when `stop` is set
    meanwhile. It raises StatusError or OSError if it cannot serve; it checks flags, addresses and
    certificates before it loads a model. After `start`, `port` and `rest_port` are the open ports.
    """

    def __init__(self, flags: argparse.Namespace):
        self._flags, self.stop = flags, threading.Event()
        self._metrics = Metrics()
        self.models = Models(lambda path: load(path, flags.max_request_seconds), self._metrics)
        self._workers: Workers | None = None
        self._loop = asyncio.new_event_loop()
        self._loop_thread = threading.Thread(target=self._loop.run_forever, name="requests")
        self._ends: list[Callable[[], Any]] = []  # async functions that close a port
        self.port = self.rest_port = 0

    def start(self) -> None:
        flags, models = self._flags, self.models
        batching = settings.read_batching(flags.batching_parameters_file, flags.enable_batching)
        credentials = settings.read_credentials(flags.ssl_config_file)
        if flags.rest_api_port and flags.rest_api_port == flags.port:
            raise invalid("--rest_api_port cannot be same as --port.")
        configs = self._configs()
        metrics = settings.read_metrics_path(flags.monitoring_config_file)
        slots = batching.num_batch_threads if batching else os.cpu_count() or 1
        most = THREADS + flags.max_waiting_requests
        self._workers = Workers(slots, most, self._metrics, batching)
        self._metrics.in_flight.set_function(self._workers.busy)
        limits = Limits(*(getattr(flags, f"max_request_{name}") for name in Limits._fields))
        service = Service(models, self._metrics, self._workers, limits)
        with ExitStack() as stack:
            claimed = stack.enter_context(_claim(flags, "port"))
            if flags.rest_api_port:
                listening = stack.enter_context(_claim(flags, "rest_api_port"))
            models.start(configs, self.stop)
            if self.stop.is_set():
                return
            self._loop_thread.start()
            self._run(self._open_grpc(service, claimed.getsockname()[1], credentials))
            if flags.rest_api_port:
                self._run(self._open_rest(service, metrics, listening.dup()))
        self._every(flags.file_system_poll_wait_seconds, lambda: models.scan(wait=False))
        if flags.model_config_file:
            seconds = flags.model_config_file_poll_wait_seconds
            self._every(seconds, lambda: models.configure(self._configs(), wait=False))

    def close(self) -> None:
        """Reject new requests, let running requests end within the grace, and free the models."""
        self.stop.set()
        deadline = time.monotonic() + self._flags.shutdown_grace_seconds
        if self._loop_thread.is_alive():
            self._run(self._close_ports())
        if self._workers:
            self._workers.close()
        self.models.close(max(0.0, deadline - time.monotonic()))
        if self._loop_thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop_thread.join()
        self._loop.close()

    def _configs(self) -> Sequence[Any]:
        """Return the ModelConfigs of the flags or of their file."""
        flags = self._flags
        if flags.model_config_file:
            return settings.read_models(flags.model_config_file)
        base_path = str(flags.model_base_path.resolve())
        return [serving_pb2.ModelConfig(name=flags.model_name, base_path=base_path)]

    def _every(self, seconds: float, action: Callable[[], None]) -> None:
        """Run `action` in a thread every `seconds` until the server stops; 0 means never."""

        def repeat() -> None:
            while not self.stop.wait(seconds):
                try:
                    action()
                except Exception as error:  # the next run may succeed
                    _log.error("The configuration stays as it is: %s", error)

        if seconds:
            threading.Thread(target=repeat, name="poll", daemon=True).start()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` in the event loop and wait for its end."""
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open_grpc(
        self, service: Service, port: int, credentials: grpc.ServerCredentials | None
    ) -> None:
        flags = self._flags
        options = {
            "grpc.max_receive_message_length": flags.max_request_bytes,
            "grpc.max_send_message_length": -1,
            "grpc.so_reuseport": 0,
            "grpc.max_allowed_incoming_connections": _MOST_CONNECTIONS,
        }
        server = grpc.aio.server(options=list(options.items()))
        server.add_generic_rpc_handlers(GrpcMethods(service).handlers())
        servicer = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
        for name in ("", "tensorflow.serving.PredictionService", "tensorflow.serving.ModelService"):
            await servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
        address = f"[{flags.host}]:{port}" if ":" in flags.host else f"{flags.host}:{port}"
        try:
            if credentials is None:
                self.port = server.add_insecure_port(address)
            else:
                self.port = server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address}: {error}") from error
        await server.start()
        self._ends.append(lambda: server.stop(flags.shutdown_grace_seconds))
        _log.info("Running gRPC ModelServer at %s:%d ...", flags.host, self.port)

    async def _open_rest(self, service: Service, metrics: str, listening: socket.socket) -> None:
        flags = self._flags
        # On loopback, other names are those of foreign pages. Elsewhere, any name may be a proxy's.
        named = flags.host in ("localhost", "::1") or flags.host.startswith("127.")
        known = named or flags.rest_api_hosts
        hosts = host_names(flags.host, flags.rest_api_hosts) if known else None
        server = uvicorn.Server(
            uvicorn.Config(
                Rest(service).app(metrics, flags.rest_api_cors_origins, hosts),
                http=_Http,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=bool(flags.rest_api_trusted_proxies),
                forwarded_allow_ips=flags.rest_api_trusted_proxies,
                limit_concurrency=_MOST_CONNECTIONS,
                h11_max_incomplete_event_size=_MOST_HEAD_BYTES,
                timeout_graceful_shutdown=flags.shutdown_grace_seconds,
            )
        )
        self.rest_port = listening.getsockname()[1]
        task = asyncio.create_task(server.serve([listening]))

        async def end() -> None:
            server.should_exit = True
            await task

        self._ends.append(end)
        while not server.started and not task.done():
            await asyncio.sleep(0.01)
        _log.info("Exporting HTTP/REST API at:%s:%d ...", flags.host, self.rest_port)

    async def _close_ports(self) -> None:
        """Accept no new requests; return when all requests have ended or the grace is over."""
        await asyncio.gather(*(end() for end in self._ends))
        await asyncio.sleep(0.2)  # the process's end resets connections with unread responses


def _claim(flags: argparse.Namespace, name: str) -> socket.socket:
    """Return a socket bound to the port of this flag. Raises a one-line OSError."""
    host, port = flags.host, getattr(flags, name)
    claimed = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        claimed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        claimed.bind((host, port))
    except (OSError, UnicodeError) as error:
        claimed.close()
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            message = f"port {port} of {host} is already in use. Stop the other server, or choose"
            raise OSError(f"{message} another: --{name}=N") from error
        raise OSError(f"cannot listen on {host}:{port} (--{name}): {error}") from error
    return claimed
