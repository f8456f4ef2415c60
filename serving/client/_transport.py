"""Sends requests over a gRPC channel, with deadlines and retries: blocking, and in asyncio."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, Self, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from serving.api._arguments import MOST_RETRIES, check_count, check_seconds, check_text
from serving.api._errors import (
    DeadlineExceededError,
    RateLimitedError,
    ServerUnavailableError,
    ServingError,
    UnexpectedResponseError,
    from_rpc_error,
)
from serving.api._results import Metadata
from serving.client._protocol import (
    METADATA,
    PREDICT,
    READY_POLL,
    RESPONSES,
    STATUS,
    Call,
    Query,
    Target,
    Tls,
    is_available,
    metadata_request,
    not_ready,
    read_metadata,
    status_request,
)
from serving.client._proxy import is_local, proxy_hint

# Of a response: one row of the largest size that the export check accepts, and the rest of it.
_MOST_BYTES = 65 * 2**20
_MOST_STATUS_BYTES = 2**22  # of a response without tensors
_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", _MOST_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.per_rpc_retry_buffer_size", _MOST_BYTES),  # larger requests are not retried
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # gRPC servers accept pings every five minutes by default, not more often.
    ("grpc.keepalive_time_ms", 300_000),
    ("grpc.keepalive_timeout_ms", 20_000),
]
_RETRY_POLICY = {
    "initialBackoff": "0.1s",
    "backoffMultiplier": 2.5,
    "maxBackoff": "4s",
    # The server did not run the request, or could not respond. Sending it again is harmless.
    "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED", "CANCELLED"],
}
# A failure costs a token, a success returns a tenth. Retries stop at half of the tokens or less.
_THROTTLING = {"maxTokens": 20, "tokenRatio": 0.1}

T = TypeVar("T")
R = TypeVar("R")
_WAITED_FOR = ServerUnavailableError, RateLimitedError, DeadlineExceededError


class _Connection:
    """A channel to a model on a server, with deadlines, retries and errors. See `Client`."""

    _library: ClassVar[Any]  # grpc or grpc.aio
    _lock: Lock
    _channel: Any
    _calls: dict[str, Any]

    def __init__(
        self,
        target: str,
        model: str,
        version: int | None = None,
        label: str | None = None,
        timeout: float = 30.0,
        tls: Tls | bool = False,
        batch_size: int = 32,
        retries: int = MOST_RETRIES,
    ):
        if version is not None and label is not None:
            raise ValueError(f"expected a version or a label. Received: {version} and {label!r}")
        for name, value in (("target", target), ("model", model), ("label", label)):
            if value is not None or name != "label":
                check_text(name, value)
        if version is not None:
            check_count("version", version, 0, 2**63 - 1)
        check_seconds("timeout", timeout)
        check_count("batch_size", batch_size, 1)
        check_count("retries", retries, 0, MOST_RETRIES)
        self.target, self.model = target, model
        self._target = Target(target, model, version, label)
        self._timeout, self._batch_size, self._retries = timeout, batch_size, retries
        self._tls = Tls() if tls is True else tls or None
        files = self._tls or Tls()
        paths = (files.root_certificates, files.private_key, files.certificate)
        self._files = [None if path is None else Path(path).read_bytes() for path in paths]
        self.__setstate__({})

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle: all but lock and channel, which belong to this process."""
        own = ("_lock", "_channel", "_calls")
        return {name: value for name, value in vars(self).items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a state, without a channel: the next request opens one."""
        vars(self).update(state, _lock=Lock(), _channel=None, _calls={})

    def _method(self, name: str) -> Any:
        """Return a method of the channel; the first request opens the channel.

        A channel of grpc.aio belongs to the event loop of the first request. Raises ServingError
        after `close`.
        """
        with self._lock:
            if self._channel is None:
                self._channel = self._open()
                self._calls = {each: self._channel.unary_unary(each) for each in RESPONSES}
            if not self._calls:
                raise ServingError(f"this client of {self.target} is closed: make another one")
            return self._calls[name]

    def _closed(self) -> Any:
        """Mark the client as closed; return its channel, or a false value if none is open."""
        with self._lock:
            channel, self._channel, self._calls = self._channel, False, {}
        return channel

    def _open(self) -> Any:
        """Return a new channel with the client's options, retries and TLS."""
        config: dict[str, Any] = {"retryThrottling": _THROTTLING}
        if self.target.startswith("dns:"):
            config["loadBalancingConfig"] = [{"round_robin": {}}]
        if self._retries:
            policy = {**_RETRY_POLICY, "maxAttempts": self._retries + 1}
            # See https://grpc.io/docs/guides/retry.
            service = {"service": PREDICT.split("/")[1]}  # status requests are polled, not retried
            config["methodConfig"] = [{"name": [service], "retryPolicy": policy}]
        options = [
            *_OPTIONS,
            ("grpc.enable_retries", int(self._retries > 0)),
            ("grpc.enable_http_proxy", int(not is_local(self.target))),
            ("grpc.service_config", json.dumps(config)),
        ]
        if self._tls is None:
            return self._library.insecure_channel(self.target, options=options)
        if self._tls.server_name:
            options.append(("grpc.ssl_target_name_override", self._tls.server_name))
        credentials = grpc.ssl_channel_credentials(*self._files)
        return self._library.secure_channel(self.target, credentials, options=options)

    def _error(self, error: grpc.RpcError, seconds: float) -> ServingError:
        """Return the ServingError of a request that had so many seconds."""
        has_tls, proxy = self._tls is not None, proxy_hint(self.target)
        return from_rpc_error(error, self.target, self.model, seconds, has_tls, proxy)

    def _response(self, method: str, data: bytes) -> Message:
        """Return the message in the bytes of a response. Raises ServingError."""
        try:
            if method != PREDICT and len(data) > _MOST_STATUS_BYTES:
                raise DecodeError
            return RESPONSES[method].FromString(data)
        except DecodeError as error:
            raise UnexpectedResponseError(
                f"the server at {self.target} sent something else than {method} answers"
            ) from error


class Client(_Connection):
    """A blocking client. Use as a context manager, or call `close()`. Threads may share it.

    Args:
        target: `host:port`, `unix:PATH`, or `dns:///NAME:PORT`, which spreads the requests over all
            addresses of the name.
        model: the model's name on the server.
        version, label: select a version by number or label; neither means the latest.
        timeout: seconds for each request, including its retries.
        tls: False for plain text, True for the system's certificates, or a `Tls`.
        batch_size: most rows in a request. Longer lists are sent in several requests, with fewer
            rows each if the server has a lower limit.
        retries: further attempts, at most 4, if the server is unavailable or overloaded, with
            growing pauses. All requests share a budget of retries.

    Raises TypeError or ValueError for a wrong argument, OSError for a file of `tls`.
    """

    _library = grpc

    def metadata(self) -> Metadata:
        """Return the version and the signatures of the served model."""
        response = self._send(METADATA, metadata_request(self._target), self._timeout)
        return read_metadata(response, self._target)

    def wait_ready(self, timeout: float = 60.0) -> None:
        """Return when the model is available.

        Raises ModelNotFoundError if the server answers that it has no such model, and
        DeadlineExceededError after `timeout` seconds.
        """
        check_seconds("timeout", timeout)
        end = time.monotonic() + timeout
        while (left := end - time.monotonic()) > 0:
            with suppress(*_WAITED_FOR):
                seconds = min(left, self._timeout)
                if is_available(self._send(STATUS, status_request(self._target), seconds)):
                    return
            time.sleep(min(READY_POLL, left))
        raise not_ready(self._target, timeout)

    def close(self) -> None:
        """Close the connection."""
        if channel := self._closed():
            channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def predict(self, query: Query[R, T]) -> list[T]:
        """Return the answer for each row of a query. Raises ServingError."""
        call = Call(query, self._target, self._batch_size)
        while call.rows_left:
            try:
                call.add(self._send(PREDICT, call.request(), self._timeout))
            except ServingError as error:
                call.reject(error)
        return call.answers()

    def _send(self, method: str, request: Message, seconds: float) -> Message:
        """Return the response to one request. Raises ServingError."""
        try:
            data = self._method(method)(request.SerializeToString(), timeout=seconds)
        except grpc.RpcError as error:
            raise self._error(error, seconds) from None
        return self._response(method, data)


class AsyncClient(_Connection):
    """`Client` for asyncio: the arguments are the same, the methods are coroutines."""

    _library = grpc.aio

    async def metadata(self) -> Metadata:
        """See `Client.metadata`."""
        response = await self._send(METADATA, metadata_request(self._target), self._timeout)
        return read_metadata(response, self._target)

    async def wait_ready(self, timeout: float = 60.0) -> None:
        """See `Client.wait_ready`."""
        check_seconds("timeout", timeout)
        end = time.monotonic() + timeout
        while (left := end - time.monotonic()) > 0:
            with suppress(*_WAITED_FOR):
                seconds = min(left, self._timeout)
                if is_available(await self._send(STATUS, status_request(self._target), seconds)):
                    return
            await asyncio.sleep(min(READY_POLL, left))
        raise not_ready(self._target, timeout)

    async def close(self) -> None:
        """Close the connection."""
        if channel := self._closed():
            await channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def predict(self, query: Query[R, T]) -> list[T]:
        """See `Client.predict`."""
        call = Call(query, self._target, self._batch_size)
        while call.rows_left:
            try:
                call.add(await self._send(PREDICT, call.request(), self._timeout))
            except ServingError as error:
                call.reject(error)
        return call.answers()

    async def _send(self, method: str, request: Message, seconds: float) -> Message:
        """See `Client._send`."""
        try:
            data = await self._method(method)(request.SerializeToString(), timeout=seconds)
        except grpc.RpcError as error:
            raise self._error(error, seconds) from None
        return self._response(method, data)
