"""Sends requests over a gRPC channel, with deadlines and retries.

`Client` runs the steps of an `Endpoint` and blocks. `AsyncClient` runs them in asyncio.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from functools import wraps
from inspect import isawaitable, signature
from pathlib import Path
from threading import Lock
from types import MethodType
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

import grpc
from google.protobuf.message import DecodeError, Message

from serving.api.errors import ServingError, UnexpectedResponseError, from_rpc_error
from serving.client.protocol import PREDICT, RESPONSES, Endpoint, Steps, Tls
from serving.client.proxy import is_local, proxy_hint

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
P = ParamSpec("P")


class rpc_method(Generic[P, T]):
    """Decorator that makes a method of a generator of steps, for both kinds of clients.

    The method blocks in a `Client`, and is a coroutine in an `AsyncClient`.
    """

    def __init__(self, steps: Callable[Concatenate[Any, P], Steps[T]]):
        @wraps(steps)
        def blocks(client: Client, *arguments: P.args, **options: P.kwargs) -> T:
            return client._finish(client._run(steps(client, *arguments, **options)))

        @wraps(steps)
        async def waits(client: AsyncClient, *arguments: P.args, **options: P.kwargs) -> T:
            return await client._run(steps(client, *arguments, **options))

        self._methods: list[Any] = [blocks, waits]
        for method in self._methods:
            answer = method.__annotations__["return"].removeprefix("Steps[")[:-1]
            method.__signature__ = signature(steps).replace(return_annotation=answer)
            method.__annotations__ = {**steps.__annotations__, "return": answer}

    def __set_name__(self, owner: type, name: str) -> None:
        """Set the name of the methods to their name in the class."""
        for method in self._methods:
            method.__name__, method.__qualname__ = name, f"{owner.__name__}.{name}"

    @overload
    def __get__(self, client: None, owner: type) -> Callable[..., Any]: ...

    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, T]: ...

    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...

    def __get__(self, client: Any, owner: type) -> Any:
        """Return the bound method of a client, or the function of a class."""
        method = self._methods[issubclass(owner, AsyncClient)]
        return method if client is None else MethodType(method, client)


class _Connection(Endpoint):
    """Channel, deadlines and errors of both kinds of clients.

    Both run the same coroutines. In a `Client`, calls inside them block, so that a coroutine runs
    to its end without an event loop.
    """

    _library: ClassVar[Any]  # grpc or grpc.aio
    _sleep: ClassVar[Any]
    _lock: Lock
    _channel: Any
    _calls: dict[str, Any]
    metadata = rpc_method(Endpoint._metadata)
    wait_ready = rpc_method(Endpoint._until_ready)

    @wraps(Endpoint.__init__)  # type: ignore[misc]
    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        tls = self._tls or Tls()
        paths = (tls.root_certificates, tls.private_key, tls.certificate)
        self._files = [None if path is None else Path(path).read_bytes() for path in paths]
        self.__setstate__({})

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle: all but lock and channel, which belong to this process."""
        own = ("_lock", "_channel", "_calls")
        return {name: value for name, value in vars(self).items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a state, without a channel: the next request opens one."""
        vars(self).update(state, _lock=Lock(), _channel=None, _calls={})

    def _call(self, method: str) -> Any:
        """Return a method of the channel; the first request opens the channel.

        A channel of grpc.aio belongs to the event loop of the first request. Raises ServingError
        after `close`.
        """
        with self._lock:
            if self._channel is None:
                self._channel = self._open()
                self._calls = {name: self._channel.unary_unary(name) for name in RESPONSES}
            if not self._calls:
                raise ServingError(f"this client of {self.target} is closed: make another one")
            return self._calls[method]

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

    async def _run(self, steps: Steps[T]) -> T:
        """Run the steps: send requests, pause, throw errors into them; return their result."""
        try:
            step = next(steps)
            while True:
                try:
                    if isinstance(step, float):
                        await _awaited(self._sleep(step))
                        step = next(steps)
                    else:
                        step = steps.send(await self._ask(*step))
                except ServingError as error:
                    step = steps.throw(error)
        except StopIteration as stop:
            return stop.value

    async def _ask(self, method: str, request: Message, seconds: float) -> Message:
        """Return the response to one request. Raises ServingError."""
        try:
            data = await _awaited(self._call(method)(request.SerializeToString(), timeout=seconds))
        except grpc.RpcError as error:
            has_tls, proxy = self._tls is not None, proxy_hint(self.target)
            raise from_rpc_error(error, self.target, self.model, seconds, has_tls, proxy) from None
        try:
            if method != PREDICT and len(data) > _MOST_STATUS_BYTES:
                raise DecodeError
            return RESPONSES[method].FromString(data)
        except DecodeError as error:
            raise UnexpectedResponseError(
                f"the server at {self.target} sent something else than {method} answers"
            ) from error


async def _awaited(value: Any) -> Any:
    """Return the result of an awaitable, or the value itself."""
    return await value if isawaitable(value) else value


class Client(_Connection):
    """A blocking client. Use as a context manager, or call `close()`. Threads may share it."""

    _library, _sleep = grpc, staticmethod(time.sleep)

    def close(self) -> None:
        """Close the connection."""
        if channel := self._closed():
            channel.close()

    @staticmethod
    def _finish(coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine that never suspends, since its calls block."""
        try:
            coroutine.send(None)
        except StopIteration as stop:
            return stop.value
        raise RuntimeError("a blocking client waits for an event loop")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(_Connection):
    """`Client` for asyncio: the arguments are the same, the methods are coroutines."""

    _library, _sleep = grpc.aio, staticmethod(asyncio.sleep)

    async def close(self) -> None:
        """Close the connection."""
        if channel := self._closed():
            await channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
