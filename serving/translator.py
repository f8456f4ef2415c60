"""Clients of a served translator, blocking and asyncio.

What is asked and what an answer means is the same for both, so it is written once as generators
that yield requests and are sent responses; the two classes only carry them out.
"""

import asyncio
import random
import re
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from serving import messages, translation
from serving.errors import (
    DeadlineExceededError,
    InvalidRequestError,
    MessageTooLargeError,
    ModelNotFoundError,
    ServerUnavailableError,
    ServingError,
    from_rpc_error,
)
from serving.translation import Alignment, Hypothesis, Translation

_PREDICT = "/tensorflow.serving.PredictionService/Predict"
_METADATA = "/tensorflow.serving.PredictionService/GetModelMetadata"
_STATUS = "/tensorflow.serving.ModelService/GetModelStatus"
_RESPONSES = {
    _PREDICT: messages.PredictResponse,
    _METADATA: messages.GetModelMetadataResponse,
    _STATUS: messages.GetModelStatusResponse,
}
_AVAILABLE = 30
_FIRST_DELAY, _LONGEST_DELAY = 0.1, 4.0
_READY_POLL = 0.2
_OPTIONS = [
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
_BATCH_LIMIT = re.compile(r"maximum input batch size (\d+)")
_DTYPES = {
    messages.FLOAT: "float",
    messages.DOUBLE: "double",
    messages.INT32: "int32",
    messages.STRING: "string",
    messages.INT64: "int64",
    messages.BOOL: "bool",
}

T = TypeVar("T")
Steps = Generator[tuple[str, Message], Message, T]


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


class _Protocol:
    """What both clients ask of a server; see `Translator` for the arguments."""

    def __init__(
        self,
        target: str,
        model: str,
        version: int | None = None,
        label: str | None = None,
        timeout: float = 30.0,
        tls: Tls | bool = False,
        batch_size: int = 32,
        retries: int = 8,
    ):
        if version is not None and label is not None:
            raise ValueError(f"expected a version or a label; received {version} and {label!r}")
        if timeout <= 0:
            raise ValueError(f"expected a timeout above 0 seconds; received {timeout}")
        if batch_size < 1:
            raise ValueError(f"expected a batch size of at least 1; received {batch_size}")
        self.target, self.model = target, model
        self._version, self._label = version, label
        self._timeout, self._batch_size, self._retries = timeout, batch_size, retries
        self._tls = Tls() if tls is True else tls or None

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

    def _calls(self, channel: Any) -> dict[str, Any]:
        return {
            method: channel.unary_unary(
                method,
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=response.FromString,
            )
            for method, response in _RESPONSES.items()
        }

    def _failure(self, error: grpc.RpcError, timeout: float) -> ServingError:
        return from_rpc_error(error, self.target, self.model, timeout)

    def _spec(self, signature: str = "") -> Message:
        return translation.model_spec(self.model, self._version, self._label, signature)

    def _delay(self, attempt: int, deadline: float) -> float | None:
        """Seconds before the next attempt, or None where there is to be none."""
        if attempt >= self._retries:
            return None
        delay = min(_LONGEST_DELAY, _FIRST_DELAY * 2**attempt) * random.uniform(0.5, 1.0)
        return delay if time.monotonic() + delay < deadline else None

    def _predict(self, signature: str, texts: Sequence[str], read: Any) -> Steps[list]:
        """Answers for any number of texts, in order, in batches that the server takes."""
        if isinstance(texts, str):
            raise TypeError("expected a list of texts; received one string")
        # Texts of about the same length share a batch: it takes as long as its longest.
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        results: list = []
        size = self._batch_size
        while len(results) < len(order):
            batch = [texts[number] for number in order[len(results) : len(results) + size]]
            request = translation.predict_request(self._spec(signature), batch)
            try:
                response = yield _PREDICT, request
            except MessageTooLargeError:
                if len(batch) == 1:
                    raise
                size = len(batch) // 2
            except InvalidRequestError as error:
                limit = _BATCH_LIMIT.search(str(error))
                if limit is None or not 0 < int(limit[1]) < len(batch):
                    raise
                size = int(limit[1])
            else:
                results += read(response, len(batch))
        return [result for _, result in sorted(zip(order, results, strict=True), key=itemgetter(0))]

    def _translate(self, texts: Sequence[str], split: bool) -> Steps[list[Translation]]:
        read = translation.read_translations
        if not split:
            return (yield from self._predict("translate", texts, read))
        pieces = [translation.split_sentences(text) for text in texts]
        sentences = [sentence for text in pieces for sentence, _ in text]
        found = iter((yield from self._predict("translate", sentences, read)))
        return [
            translation.join_sentences([(next(found), gap) for _, gap in text]) for text in pieces
        ]

    def _metadata(self) -> Steps[Metadata]:
        request = messages.GetModelMetadataRequest(
            model_spec=self._spec(), metadata_field=["signature_def"]
        )
        response = yield _METADATA, request
        signatures = messages.SignatureDefMap()
        response.metadata["signature_def"].Unpack(signatures)
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
        except (ModelNotFoundError, ServerUnavailableError):
            return False
        return any(version.state == _AVAILABLE for version in response.model_version_status)

    def _not_ready(self, timeout: float) -> DeadlineExceededError:
        return DeadlineExceededError(
            f"model {self.model!r} was not available at {self.target} within {timeout:g} s: check "
            "that the server runs, its log, and the model's name",
            grpc.StatusCode.DEADLINE_EXCEEDED,
        )


def _tensor_text(info: Message) -> str:
    dims = ", ".join("?" if dim.size < 0 else str(dim.size) for dim in info.tensor_shape.dim)
    return f"{_DTYPES.get(info.dtype, f'type {info.dtype}')}({dims})"


class Translator(_Protocol):
    """A translator on a model server.

    Args:
        target: `host:port`, `unix:PATH`, or `dns:///NAME:PORT`, which spreads the requests over all
            addresses of the name.
        model: its name on the server.
        version, label: which version; neither means the latest.
        timeout: seconds for each request, its retries included.
        tls: False for plain text, True for the system's certificates, or a `Tls`.
        batch_size: most texts in a request; longer lists are cut, and smaller where the server
            says so.
        retries: attempts after the first where the server is unavailable, with growing pauses.

    Its methods raise a ServingError. Use as a context manager, or `close()`. Threads may share it.
    """

    def __init__(self, target: str, model: str, *args: Any, **options: Any):
        super().__init__(target, model, *args, **options)
        self._channel = self._open(grpc)
        self._call = self._calls(self._channel)

    def translate(self, texts: Sequence[str], split: bool = False) -> list[Translation]:
        """The best translation of each text; with `split`, sentence by sentence."""
        return self._run(self._translate(texts, split))

    def nbest(self, texts: Sequence[str]) -> list[list[Hypothesis]]:
        """Each text's translations, best first, as many as the model was exported with."""
        return self._run(self._predict("nbest", texts, translation.read_nbest))

    def align(self, texts: Sequence[str]) -> list[Alignment]:
        """Each text's translation with its attention weights."""
        return self._run(self._predict("align", texts, translation.read_alignments))

    def metadata(self) -> Metadata:
        """Version and signatures of the served model."""
        return self._run(self._metadata())

    def wait_ready(self, timeout: float = 60.0) -> None:
        """Return when the model is available. Raises DeadlineExceededError after `timeout` s."""
        deadline = time.monotonic() + timeout
        while not self._run(self._is_ready(), deadline - time.monotonic(), retries=False):
            if time.monotonic() + _READY_POLL >= deadline:
                raise self._not_ready(timeout)
            time.sleep(_READY_POLL)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def _run(self, steps: Steps[T], timeout: float | None = None, retries: bool = True) -> T:
        try:
            method, request = next(steps)
            while True:
                try:
                    response = self._send(method, request, timeout or self._timeout, retries)
                except ServingError as error:
                    method, request = steps.throw(error)
                else:
                    method, request = steps.send(response)
        except StopIteration as stop:
            return stop.value

    def _send(self, method: str, request: Message, timeout: float, retries: bool) -> Message:
        deadline = time.monotonic() + timeout
        attempt = 0
        while True:
            try:
                return self._call[method](request, timeout=deadline - time.monotonic())
            except grpc.RpcError as error:
                failure = self._failure(error, timeout)
            delay = self._delay(attempt, deadline)
            if not (retries and isinstance(failure, ServerUnavailableError)) or delay is None:
                raise failure
            time.sleep(delay)
            attempt += 1

    def __enter__(self) -> "Translator":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncTranslator(_Protocol):
    """`Translator` for asyncio: the same arguments, its methods are coroutines."""

    def __init__(self, target: str, model: str, *args: Any, **options: Any):
        super().__init__(target, model, *args, **options)
        self._channel = self._open(grpc.aio)
        self._call = self._calls(self._channel)

    async def translate(self, texts: Sequence[str], split: bool = False) -> list[Translation]:
        """See `Translator.translate`."""
        return await self._run(self._translate(texts, split))

    async def nbest(self, texts: Sequence[str]) -> list[list[Hypothesis]]:
        """See `Translator.nbest`."""
        return await self._run(self._predict("nbest", texts, translation.read_nbest))

    async def align(self, texts: Sequence[str]) -> list[Alignment]:
        """See `Translator.align`."""
        return await self._run(self._predict("align", texts, translation.read_alignments))

    async def metadata(self) -> Metadata:
        """See `Translator.metadata`."""
        return await self._run(self._metadata())

    async def wait_ready(self, timeout: float = 60.0) -> None:
        """See `Translator.wait_ready`."""
        deadline = time.monotonic() + timeout
        while not await self._run(self._is_ready(), deadline - time.monotonic(), retries=False):
            if time.monotonic() + _READY_POLL >= deadline:
                raise self._not_ready(timeout)
            await asyncio.sleep(_READY_POLL)

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()

    async def _run(self, steps: Steps[T], timeout: float | None = None, retries: bool = True) -> T:
        try:
            method, request = next(steps)
            while True:
                try:
                    response = await self._send(method, request, timeout or self._timeout, retries)
                except ServingError as error:
                    method, request = steps.throw(error)
                else:
                    method, request = steps.send(response)
        except StopIteration as stop:
            return stop.value

    async def _send(self, method: str, request: Message, timeout: float, retries: bool) -> Message:
        deadline = time.monotonic() + timeout
        attempt = 0
        while True:
            try:
                return await self._call[method](request, timeout=deadline - time.monotonic())
            except grpc.RpcError as error:
                failure = self._failure(error, timeout)
            delay = self._delay(attempt, deadline)
            if not (retries and isinstance(failure, ServerUnavailableError)) or delay is None:
                raise failure
            await asyncio.sleep(delay)
            attempt += 1

    async def __aenter__(self) -> "AsyncTranslator":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
