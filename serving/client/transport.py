"""Sends requests over a channel, within deadlines, and again if that helps.

`Client` carries out the questions of an `Endpoint` and blocks. `AsyncClient` is for asyncio.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, Self, TypeVar, overload

import grpc
from google.protobuf.message import DecodeError, Message

from serving.client.channel import open_channel
from serving.client.errors import (
    DeadlineExceededError,
    ServingError,
    UnexpectedResponseError,
    from_rpc_error,
)
from serving.client.protocol import PREDICT, RESPONSES, Endpoint, Metadata, Steps
from serving.client.retries import Deadline, pause

_READY_POLL = 0.2
_MOST_STATUS_BYTES = 2**22  # of an answer that holds no tensors

T = TypeVar("T")
P = ParamSpec("P")


class _Sending(NamedTuple):
    """A request to send now, and for how many seconds to wait for its answer."""

    method: str
    data: bytes
    seconds: float


# The next thing for a client to do: send a request and hand back its bytes or error, or sleep.
_Orders = Generator[_Sending | float, bytes | grpc.RpcError | None, T]


class _Connection(Endpoint):
    """The order of sending, waiting and trying again, the same for both kinds of client."""

    def _parsed(self, method: str, data: bytes) -> Message:
        self._budget.succeeded()
        try:
            if method != PREDICT and len(data) > _MOST_STATUS_BYTES:
                raise DecodeError
            return RESPONSES[method].FromString(data)
        except DecodeError as error:
            raise UnexpectedResponseError(
                f"the server at {self.target} sent something else than {method} answers"
            ) from error

    def _carry_out(
        self, steps: Steps[T], call: Deadline | None = None, retries: int | None = None
    ) -> _Orders[T]:
        """Return what a generator returns; yields what there is to do for it."""
        call = call or Deadline(self._call_timeout)
        retries = self._retries if retries is None else retries
        try:
            method, request = next(steps)
            while True:
                try:
                    response = yield from self._send(method, request, call, retries)
                except ServingError as error:
                    method, request = steps.throw(error)
                else:
                    method, request = steps.send(response)
        except StopIteration as stop:
            return stop.value

    def _send(
        self, method: str, request: Message, call: Deadline, retries: int
    ) -> _Orders[Message]:
        """Return the response to a request that may be sent again. Raises a ServingError."""
        data, attempt = request.SerializeToString(), 0
        seconds = call.left(self._timeout)
        deadline = Deadline(seconds)
        failure: ServingError | None = None
        while True:
            left = deadline.left(seconds)
            if left <= 0:
                raise failure or self._too_late()
            answer = yield _Sending(method, data, left)
            if isinstance(answer, bytes):
                return self._parsed(method, answer)
            failure = from_rpc_error(answer, self.target, self.model, seconds)
            delay = pause(failure, attempt, retries, self._budget)
            if delay is None or delay >= deadline.left(seconds):
                raise failure
            yield delay
            attempt += 1

    def _too_late(self) -> DeadlineExceededError:
        return DeadlineExceededError(
            f"not all of the call was answered by {self.target} within {self._call_timeout:g} s: "
            "allow more time, or send less",
            grpc.StatusCode.DEADLINE_EXCEEDED,
        )

    def _until_ready(self, timeout: float) -> _Orders[None]:
        """Return when the model is available."""
        deadline = Deadline(timeout)
        while deadline.left(timeout) > 0:
            try:
                if (yield from self._carry_out(self._is_ready(), deadline, retries=0)):
                    return
            except DeadlineExceededError:
                break
            yield max(0.0, min(_READY_POLL, deadline.left(timeout)))
        raise DeadlineExceededError(
            f"model {self.model!r} was not available at {self.target} within {timeout:g} s: check "
            "that the server runs, its log, and the model's name",
            grpc.StatusCode.DEADLINE_EXCEEDED,
        )


class Client(_Connection):
    """A client that blocks. Use as a context manager, or `close()`. Threads may share it."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self._channel = open_channel(grpc, self.target, self._tls)
        self._call = {method: self._channel.unary_unary(method) for method in RESPONSES}

    def metadata(self) -> Metadata:
        """Version and signatures of the served model."""
        return self._run(self._carry_out(self._metadata()))

    def wait_ready(self, timeout: float = 60.0) -> None:
        """Return when the model is available.

        Raises ModelNotFoundError where the server answers and has no such model, and
        DeadlineExceededError after `timeout` seconds.
        """
        self._run(self._until_ready(timeout))

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def _run(self, orders: _Orders[T]) -> T:
        """Carry out what a generator orders; return what it returns."""
        answer: bytes | grpc.RpcError | None = None
        try:
            while True:
                match orders.send(answer):
                    case _Sending(method, data, seconds):
                        try:
                            answer = self._call[method](data, timeout=seconds)
                        except grpc.RpcError as error:
                            answer = error
                    case delay:
                        time.sleep(delay)
                        answer = None
        except StopIteration as stop:
            return stop.value

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(_Connection):
    """`Client` for asyncio: the same arguments, its methods are coroutines."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self._channel = open_channel(grpc.aio, self.target, self._tls)
        self._call = {method: self._channel.unary_unary(method) for method in RESPONSES}

    async def metadata(self) -> Metadata:
        """See `Client.metadata`."""
        return await self._run(self._carry_out(self._metadata()))

    async def wait_ready(self, timeout: float = 60.0) -> None:
        """See `Client.wait_ready`."""
        await self._run(self._until_ready(timeout))

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()

    async def _run(self, orders: _Orders[T]) -> T:
        """See `Client._run`."""
        answer: bytes | grpc.RpcError | None = None
        try:
            while True:
                match orders.send(answer):
                    case _Sending(method, data, seconds):
                        try:
                            answer = await self._call[method](data, timeout=seconds)
                        except grpc.RpcError as error:
                            answer = error
                    case delay:
                        await asyncio.sleep(delay)
                        answer = None
        except StopIteration as stop:
            return stop.value

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Question(Generic[P, T]):
    """A method of both kinds of client, as the steps to its answer; a decorator.

    It blocks in a `Client`, and is a coroutine in an `AsyncClient`.
    """

    def __init__(self, steps: Callable[Concatenate[Any, P], Steps[T]]):
        self._steps = steps
        self.__doc__ = steps.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...

    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, T]: ...

    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...

    def __get__(self, client: Any, owner: type) -> Any:
        """The method of a client."""
        return self if client is None else partial(self._ask, client)

    def _ask(self, client: Any, *arguments: P.args, **options: P.kwargs) -> Any:
        return client._run(client._carry_out(self._steps(client, *arguments, **options)))
