"""One way to speak to a model server, for every kind of client: connection, deadlines, retries.

What is asked and what an answer means is written once, as generators that yield `(method, request)`
and are sent responses, or have a `ServingError` thrown into them. `Client` carries them out and
blocks, `AsyncClient` is for asyncio. A client of another kind of model has methods of both that run
`Endpoint.predict` with its own way to write requests and read responses; see `serving.translator`.
"""

import asyncio
import re
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import grpc
from google.protobuf.message import DecodeError

from serving import messages
from serving.errors import (
    DeadlineExceededError,
    InvalidRequestError,
    MessageTooLargeError,
    ModelNotFoundError,
    RateLimitedError,
    ServerUnavailableError,
    ServingError,
    UnexpectedResponseError,
    from_rpc_error,
)
from serving.retries import RETRIES, Deadline, RetryBudget, pause

_PREDICT = "/tensorflow.serving.PredictionService/Predict"
_METADATA = "/tensorflow.serving.PredictionService/GetModelMetadata"
_STATUS = "/tensorflow.serving.ModelService/GetModelStatus"
_RESPONSES = {
    _PREDICT: messages.PredictResponse,
    _METADATA: messages.GetModelMetadataResponse,
    _STATUS: messages.GetModelStatusResponse,
}
_AVAILABLE = 30
_READY_POLL = 0.2
_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # Five minutes is the shortest interval that servers allow unless told otherwise.
    ("grpc.keepalive_time_ms", 300_000),
    ("grpc.keepalive_timeout_ms", 20_000),
]
_SPREAD = ("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}')
_BATCH_LIMIT = re.compile(r"maximum input batch size (\d{1,9})\b")
_DTYPES = {
    messages.FLOAT: "float",
    messages.DOUBLE: "double",
    messages.INT32: "int32",
    messages.STRING: "string",
    messages.INT64: "int64",
    messages.BOOL: "bool",
}

Message = Any  # of `serving.messages`, whose fields no type checker knows
T = TypeVar("T")
R = TypeVar("R")
Steps = Generator[tuple[str, Message], Message, T]


class _Sending(NamedTuple):
    """A request to send now, and for how many seconds to wait for its answer."""

    method: str
    data: bytes
    seconds: float


# What a client has to do next: send a request, whose bytes or error it hands back, or sleep.
_Orders = Generator[_Sending | float, bytes | grpc.RpcError | None, T]


@dataclass(frozen=True)
class Tls:
    """Files of an encrypted connection, all PEM.

    Args:
        root_certificates: of the authorities to trust; None means the system's.
        certificate, private_key: the client's own, where the server asks for them.
        server_name: the name in the server's certificate, where the target has another.
    """

    root_certificates: str | Path | None = None
    certificate: str | Path | None = None
    private_key: str | Path | None = None
    server_name: str | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        """Channel credentials from the files. Raises OSError."""
        paths = (self.root_certificates, self.private_key, self.certificate)
        return grpc.ssl_channel_credentials(
            *(None if path is None else Path(path).read_bytes() for path in paths)
        )


@dataclass(frozen=True)
class Metadata:
    """Of a served model: its version, and of each signature the inputs and outputs.

    `signatures[name]["inputs" or "outputs"][alias]` reads like `string(?, ?)`.
    """

    model: str
    version: int
    signatures: dict[str, dict[str, dict[str, str]]]


class Endpoint:
    """A model on a server, and what can be asked of it.

    Args:
        target: `host:port`, `unix:PATH`, or `dns:///NAME:PORT`, which spreads the requests over all
            addresses of the name.
        model: its name on the server.
        version, label: which version; neither means the latest.
        timeout: seconds for each request, its retries included.
        call_timeout: seconds for a whole call, which may be many requests; None for any number.
        tls: False for plain text, True for the system's certificates, or a `Tls`.
        batch_size: most rows in a request; longer lists are cut, and smaller where the server
            says so.
        retries: attempts after the first where the server is unavailable or takes no more requests
            now, with growing pauses. All requests share a budget for them.
    """

    def __init__(
        self,
        target: str,
        model: str,
        version: int | None = None,
        label: str | None = None,
        timeout: float = 30.0,
        tls: Tls | bool = False,
        batch_size: int = 32,
        retries: int = RETRIES,
        call_timeout: float | None = None,
    ):
        if version is not None and label is not None:
            raise ValueError(f"expected a version or a label; received {version} and {label!r}")
        for name, value in (("timeout", timeout), ("call_timeout", call_timeout)):
            if value is not None and not value > 0:
                raise ValueError(f"expected a {name} above 0 seconds; received {value}")
        if batch_size < 1:
            raise ValueError(f"expected a batch size of at least 1; received {batch_size}")
        if retries < 0:
            raise ValueError(f"expected at least 0 retries; received {retries}")
        self.target, self.model = target, model
        self._version, self._label = version, label
        self._timeout, self._call_timeout = timeout, call_timeout
        self._batch_size, self._retries, self._budget = batch_size, retries, RetryBudget()
        self._tls = Tls() if tls is True else tls or None

    def predict(
        self,
        signature: str,
        rows: Sequence[R],
        write: Callable[[Sequence[R]], dict[str, Message]],
        read: Callable[[Message, int], list[T]],
        size: Callable[[Any], int] = len,
    ) -> Steps[list[T]]:
        """Answers for any number of rows, in order, in batches that the server takes.

        Args:
            signature: of the model.
            rows: of the batch.
            write: from rows to the inputs of a request, TensorProtos by name.
            read: from a PredictResponse and its number of rows to an answer for each row.
            size: of a row. Rows of about the same size share a batch: it takes as long as its
                longest.
        """
        order = sorted(range(len(rows)), key=lambda number: size(rows[number]))
        results: list[T] = []
        most = self._batch_size
        while len(results) < len(order):
            batch = [rows[number] for number in order[len(results) : len(results) + most]]
            request = messages.PredictRequest(model_spec=self._spec(signature))
            for name, tensor in write(batch).items():
                request.inputs[name].CopyFrom(tensor)
            try:
                response = yield _PREDICT, request
            except MessageTooLargeError:
                if len(batch) == 1:
                    raise
                most = len(batch) // 2
            except InvalidRequestError as error:
                limit = _BATCH_LIMIT.search(str(error))
                if limit is None or not 0 < int(limit[1]) < len(batch):
                    raise
                most = int(limit[1])
            else:
                results += read(response, len(batch))
        return [result for _, result in sorted(zip(order, results, strict=True), key=itemgetter(0))]

    def _spec(self, signature: str = "") -> Message:
        spec = messages.ModelSpec(name=self.model, signature_name=signature)
        if self._version is not None:
            spec.version.value = self._version
        if self._label is not None:
            spec.version_label = self._label
        return spec

    def _metadata(self) -> Steps[Metadata]:
        request = messages.GetModelMetadataRequest(
            model_spec=self._spec(), metadata_field=["signature_def"]
        )
        response = yield _METADATA, request
        signatures = messages.SignatureDefMap()
        try:
            known = response.metadata["signature_def"].Unpack(signatures)
        except DecodeError:
            known = False
        if not known:
            raise UnexpectedResponseError(f"the server at {self.target} sent no signatures")
        return Metadata(
            response.model_spec.name,
            response.model_spec.version.value,
            {
                name: {
                    "inputs": {alias: _tensor_text(i) for alias, i in signature.inputs.items()},
                    "outputs": {alias: _tensor_text(o) for alias, o in signature.outputs.items()},
                }
                for name, signature in sorted(signatures.signature_def.items())
                if not name.startswith("__")
            },
        )

    def _is_ready(self) -> Steps[bool]:
        request = messages.GetModelStatusRequest(model_spec=self._spec())
        try:
            response = yield _STATUS, request
        except (ModelNotFoundError, ServerUnavailableError, RateLimitedError):
            return False
        return any(version.state == _AVAILABLE for version in response.model_version_status)

    def _not_ready(self, timeout: float) -> DeadlineExceededError:
        return DeadlineExceededError(
            f"model {self.model!r} was not available at {self.target} within {timeout:g} s: check "
            "that the server runs, its log, and the model's name",
            grpc.StatusCode.DEADLINE_EXCEEDED,
        )

    def _open(self, library: Any) -> Any:
        """A channel of `grpc` or `grpc.aio`."""
        options = list(_OPTIONS)
        if self.target.startswith("dns:"):
            options.append(_SPREAD)
        if self._tls is None:
            return library.insecure_channel(self.target, options=options)
        if self._tls.server_name:
            options.append(("grpc.ssl_target_name_override", self._tls.server_name))
        return library.secure_channel(self.target, self._tls.credentials(), options=options)

    def _parsed(self, method: str, data: bytes) -> Message:
        self._budget.succeeded()
        try:
            return _RESPONSES[method].FromString(data)
        except DecodeError as error:
            raise UnexpectedResponseError(
                f"the server at {self.target} sent something else than {method} answers"
            ) from error

    def _carry_out(self, steps: Steps[T], call: Deadline | None, retries: int | None) -> _Orders[T]:
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


def _tensor_text(info: Message) -> str:
    dims = ", ".join("?" if dim.size < 0 else str(dim.size) for dim in info.tensor_shape.dim)
    return f"{_DTYPES.get(info.dtype, f'type {info.dtype}')}({dims})"


class Client(Endpoint):
    """A client that blocks. Use as a context manager, or `close()`. Threads may share it."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self._channel = self._open(grpc)
        self._call = {method: self._channel.unary_unary(method) for method in _RESPONSES}

    def metadata(self) -> Metadata:
        """Version and signatures of the served model."""
        return self._run(self._metadata())

    def wait_ready(self, timeout: float = 60.0) -> None:
        """Return when the model is available. Raises DeadlineExceededError after `timeout` s."""
        deadline = Deadline(timeout)
        while deadline.left(timeout) > 0:
            try:
                if self._run(self._is_ready(), deadline, retries=0):
                    return
            except DeadlineExceededError:
                break
            time.sleep(max(0.0, min(_READY_POLL, deadline.left(timeout))))
        raise self._not_ready(timeout)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def _run(self, steps: Steps[T], call: Deadline | None = None, retries: int | None = None) -> T:
        """Carry out what a generator asks for; return what it returns."""
        orders = self._carry_out(steps, call, retries)
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


class AsyncClient(Endpoint):
    """`Client` for asyncio: the same arguments, its methods are coroutines."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self._channel = self._open(grpc.aio)
        self._call = {method: self._channel.unary_unary(method) for method in _RESPONSES}

    async def metadata(self) -> Metadata:
        """See `Client.metadata`."""
        return await self._run(self._metadata())

    async def wait_ready(self, timeout: float = 60.0) -> None:
        """See `Client.wait_ready`."""
        deadline = Deadline(timeout)
        while deadline.left(timeout) > 0:
            try:
                if await self._run(self._is_ready(), deadline, retries=0):
                    return
            except DeadlineExceededError:
                break
            await asyncio.sleep(max(0.0, min(_READY_POLL, deadline.left(timeout))))
        raise self._not_ready(timeout)

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()

    async def _run(
        self, steps: Steps[T], call: Deadline | None = None, retries: int | None = None
    ) -> T:
        """See `Client._run`."""
        orders = self._carry_out(steps, call, retries)
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
