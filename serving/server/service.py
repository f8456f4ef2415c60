"""Answers requests over gRPC and REST, and serves the metrics page."""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import grpc
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from prometheus_client import Histogram, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from serving.api.http import Guard, unless_gone
from serving.client import serving_pb2
from serving.client.protobuf import SIGNATURES
from serving.client.serving_pb2 import GetModelMetadataResponse, SignatureDefMap
from serving.savedmodel.status import (
    Code,
    StatusError,
    Waiting,
    deadline_exceeded,
    invalid,
    shortened,
)
from serving.server import tensors
from serving.server.calls import Call, Job, Metrics, Part, Workers
from serving.server.models import Models
from serving.server.tensors import Arrays, Limits

_DEFAULT_SIGNATURE = "serving_default"
_Choice = tuple[str, int | None]  # a model and its version, None for the newest
_log = logging.getLogger(__name__)
_Method = Callable[[bytes, Call], Awaitable[bytes]]
_CODES = {code.value[0]: code for code in grpc.StatusCode}
_HTTP_STATUS = {
    Code.INVALID_ARGUMENT: 400,
    Code.FAILED_PRECONDITION: 400,
    Code.OUT_OF_RANGE: 400,
    Code.NOT_FOUND: 404,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.CANCELLED: 499,
    Code.UNIMPLEMENTED: 501,
    Code.UNAVAILABLE: 503,
    Code.DEADLINE_EXCEEDED: 504,
}
_TOO_LARGE = 413
_LARGE_BYTES = 2**16  # a larger request is read in a thread
_VALUE_BYTES = 2**5  # of a JSON value, at least: so long do others take to be read
_MOST_DIGITS = 19  # of an int64


class _Question(NamedTuple):
    """What a request asks for.

    `signature` is "" for the default signature. `read` returns the input arrays, given the
    TensorInfos of the inputs by alias. `write` returns the response, given the number of the
    version and its outputs by alias. `outputs` names the outputs to return; none means all.
    """

    choice: _Choice
    signature: str
    read: Callable[[Mapping[str, Message]], Arrays]
    write: Callable[[int, Arrays], Any]
    outputs: Sequence[str] = ()


@dataclass(frozen=True)
class Service:
    """Answers requests within the limits, by workers; with batching, `most_rows` of a batch."""

    models: Models
    metrics: Metrics
    workers: Workers
    limits: Limits
    most_rows: int | None = None

    async def predict(self, call: Call, size: int, parse: Callable[[], _Question]) -> Any:
        """Return the response to a request of `size` bytes, which `parse` reads.

        A large request is expensive, and is read only when its turn comes. Raises StatusError.
        """
        with self._counted(call):
            if size > _LARGE_BYTES:
                job = Job(call, size, partial(self._answer_large, call, parse))
            else:
                with ExitStack() as stack:
                    part = self._part(call, parse(), stack)
                    cost, alone = tensors.cost(part.inputs), partial(part.answer, call)
                    job = Job(call, cost, alone, part if self.most_rows else None)
                    release = stack.pop_all().close  # the model stays loaded until the job ends
                job.response.add_done_callback(lambda _: release())
            return await self.workers.run(job)

    def _answer_large(self, call: Call, parse: Callable[[], _Question]) -> Any:
        with ExitStack() as stack:
            return self._part(call, parse(), stack).answer(call)

    def _part(self, call: Call, question: _Question, stack: ExitStack) -> Part:
        """Return the checked request, whose model stays loaded until the stack closes."""
        call.model = question.choice[0]
        if not call.seconds_left():
            raise deadline_exceeded()
        number, model = stack.enter_context(self.models.acquire(*question.choice))
        key = question.signature or _DEFAULT_SIGNATURE
        if key not in model.signatures:
            message = f'Serving signature key "{key}" not found.'
            raise StatusError(Code.FAILED_PRECONDITION, message)
        signature, names = model.signatures[key], question.outputs
        if len({*names} & {*signature.outputs}) != len(names):
            expected = f"some of the outputs {sorted(signature.outputs)}, each once"
            raise invalid(f"expected {expected}. Received: {sorted(names)}")
        inputs = question.read(signature.inputs)
        tensors.check_shapes(inputs, signature.inputs, self.limits)

        def run(inputs: Arrays, names: Sequence[str], waiting: Waiting) -> Arrays:
            started = time.perf_counter()
            outputs = model.run(key, inputs, names, waiting)
            _observe(self.metrics.runtime.labels(question.choice[0], "Predict"), started)
            return outputs

        def write(outputs: Arrays) -> Any:
            return question.write(number, {alias: outputs[alias] for alias in names or outputs})

        part = Part((id(model), key), run, inputs, names, write)
        if self.most_rows:
            tensors.check_rows(part.rows(), self.most_rows)
        return part

    @contextmanager
    def _counted(self, call: Call) -> Iterator[None]:
        """Count a request with its status and time."""
        started, code = time.perf_counter(), Code.INTERNAL
        try:
            yield
            code = Code.OK
        except StatusError as error:
            code = error.code
            raise
        except asyncio.CancelledError:
            code = Code.CANCELLED
            raise
        finally:
            # Clients may send any name. Only names of the configuration become labels.
            label = call.model if self.models.has(call.model) else ""
            self.metrics.requests.labels(label, code.name).inc()
            _observe(self.metrics.latency.labels(label, "Predict", call.entrypoint), started)

    def metadata(self, choice: _Choice) -> Message:
        """Return the GetModelMetadataResponse of a version: its signatures. Raises StatusError."""
        signatures = SignatureDefMap()
        response = GetModelMetadataResponse()
        with self.models.acquire(*choice) as (number, model):
            for alias, signature in model.signatures.items():
                signatures.signature_def[alias].MergeFromString(signature.SerializeToString())
        response.model_spec.name = choice[0]
        response.model_spec.version.value = number
        response.metadata["signature_def"].type_url = SIGNATURES
        response.metadata["signature_def"].value = signatures.SerializeToString()
        return response


def _observe(histogram: Histogram, started: float) -> None:
    histogram.observe((time.perf_counter() - started) * 1e6)


@dataclass(frozen=True)
class GrpcMethods:
    """The methods of both gRPC services; a request may take `seconds`."""

    service: Service
    seconds: float

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """Return the handlers for `grpc.aio.Server.add_generic_rpc_handlers`."""

        def handler(service: str, **methods: _Method) -> grpc.GenericRpcHandler:
            answers = {name: partial(self._answer, method) for name, method in methods.items()}
            handlers = {n: grpc.unary_unary_rpc_method_handler(a) for n, a in answers.items()}
            return grpc.method_handlers_generic_handler(f"tensorflow.serving.{service}", handlers)

        return [
            handler("PredictionService", Predict=self._predict, GetModelMetadata=self._metadata),
            handler("ModelService", GetModelStatus=self._status),
        ]

    async def _answer(
        self, method: _Method, data: bytes, context: grpc.aio.ServicerContext
    ) -> bytes | None:
        """Return the serialized response of a method; end the call with a status if it fails."""
        left = context.time_remaining()
        seconds = self.seconds if left is None else min(left, self.seconds)
        call = Call(seconds, client=context.peer())
        try:
            return await method(data, call)
        except StatusError as status:
            error = status
        except Exception as failure:
            _log.exception("A request failed inside the server")
            error = StatusError.internal(failure)
        await context.abort(_CODES[error.code], shortened(error.message))
        return None  # not reached: abort raises

    async def _predict(self, data: bytes, call: Call) -> bytes:
        return await self.service.predict(call, len(data), partial(self._question, data))

    def _question(self, data: bytes) -> _Question:
        request = _parse(serving_pb2.PredictRequest, data)
        spec = request.model_spec

        def write(version: int, outputs: Arrays) -> bytes:
            response = serving_pb2.PredictResponse()
            for alias, array in outputs.items():
                response.outputs[alias].CopyFrom(tensors.to_proto(array))
            response.model_spec.name = spec.name
            response.model_spec.signature_name = spec.signature_name or _DEFAULT_SIGNATURE
            response.model_spec.version.value = version
            return response.SerializeToString()

        read = partial(tensors.read_tensors, request.inputs, limits=self.service.limits)
        names = list(request.output_filter)
        return _Question(_choice_of_spec(request), spec.signature_name, read, write, names)

    async def _metadata(self, data: bytes, call: Call) -> bytes:
        request = _parse(serving_pb2.GetModelMetadataRequest, data)
        choice = _choice_of_spec(request)
        if {*request.metadata_field} != {"signature_def"}:
            received = list(request.metadata_field)
            raise invalid(f"metadata_field expected signature_def. Received: {received}")
        return self.service.metadata(choice).SerializeToString()

    async def _status(self, data: bytes, call: Call) -> bytes:
        choice = _choice_of_spec(_parse(serving_pb2.GetModelStatusRequest, data))
        return self.service.models.status(*choice).SerializeToString()


def _parse(kind: Any, data: bytes) -> Any:
    """Return a protocol message. Raises StatusError."""
    try:
        return kind.FromString(data)
    except DecodeError:
        raise invalid("The message of the request cannot be parsed") from None


def _choice_of_spec(request: Any) -> _Choice:
    if not request.HasField("model_spec"):
        raise invalid("Missing ModelSpec")
    spec = request.model_spec
    if spec.WhichOneof("version_choice") == "version_label":
        raise invalid(f"Unrecognized servable version label: {spec.version_label}")
    return spec.name, spec.version.value if spec.HasField("version") else None


@dataclass(frozen=True)
class Rest:
    """The REST endpoints; a request may take `seconds` from its headers to its response."""

    service: Service
    seconds: float

    def app(self, metrics: str, origins: Sequence[str], hosts: Sequence[str] | None) -> Starlette:
        """Return the application.

        Args:
            metrics: path of the metrics page; "" means no such page.
            origins: origins whose pages may send requests (CORS).
            hosts: names by which clients may call the server; None means any.
        """
        routes = [Route(metrics, self._metrics)] if metrics else []
        for path in ("/v1/models/{name}/versions/{version}", "/v1/models/{name}"):
            routes += [
                Route(f"{path}:predict", self._predict, methods=["POST"]),
                Route(f"{path}/metadata", self._metadata),
                Route(path, self._status),
            ]
        handled = (StatusError, TimeoutError, HTTPException, ClientDisconnect, Exception)
        app = Starlette(routes=routes, exception_handlers=dict.fromkeys(handled, _failure))
        if origins:
            methods = ["GET", "POST"]
            app.add_middleware(CORSMiddleware, origins, methods, allow_headers=["content-type"])
        app.add_middleware(Guard, hosts, origins)
        app.router.redirect_slashes = False  # it would redirect to the Host that was sent
        return app

    async def _predict(self, request: Request) -> Response:
        choice, call = _choice_of_path(request), Call(self.seconds, "REST", request.client)
        body, most = bytearray(), self.service.limits.bytes
        async with asyncio.timeout(self.seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise HTTPException(_TOO_LARGE, f"The body is larger than {most} bytes")
        size = max(len(body), _VALUE_BYTES * body.count(b","))
        answer = self.service.predict(call, size, partial(_question_of_json, choice, body))
        return _json(await unless_gone(request, answer))

    async def _status(self, request: Request) -> Response:
        return _json(_text(self.service.models.status(*_choice_of_path(request))))

    async def _metadata(self, request: Request) -> Response:
        response: Any = self.service.metadata(_choice_of_path(request))
        signatures = SignatureDefMap.FromString(response.metadata["signature_def"].value)
        spec, about = _text(response.model_spec), _text(signatures)
        return _json(f'{{"model_spec": {spec}, "metadata": {{"signature_def": {about}}}}}')

    async def _metrics(self, _: Request) -> Response:
        page = generate_latest(self.service.metrics.registry)
        return Response(page, media_type="text/plain; version=0.0.4")


def _question_of_json(choice: _Choice, body: bytearray) -> _Question:
    document = tensors.parse(body)

    def write(_: int, outputs: Arrays) -> str:
        return tensors.write_outputs(outputs, rows="instances" in document)

    read = partial(tensors.read_inputs, document)
    return _Question(choice, document.get("signature_name", ""), read, write)


def _choice_of_path(request: Request) -> _Choice:
    name, version = request.path_params["name"], request.path_params.get("version")
    if version is None:
        return name, None
    if not (version.isascii() and version.isdecimal()) or len(version) > _MOST_DIGITS:
        raise invalid(f"Failed to convert version: {version[:100]} to numeric.")
    return name, int(version)


def _text(message: Message) -> str:
    """Return a protocol message as JSON, with the field names of its definition."""
    return json_format.MessageToJson(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def _json(text: str, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(text.encode("utf-8", "replace"), status, headers, "application/json")


async def _failure(request: Request, error: Exception) -> Response:
    """Return the response to a failed request.

    It closes the connection: what is left of an unread body must not be parsed as a request.
    """
    if isinstance(error, HTTPException):  # no route matches, or the body is too large
        status, message = error.status_code, error.detail
        if status != _TOO_LARGE:
            message = f"Malformed request: {request.method} {request.url.path[:256]}"
    else:
        if isinstance(error, TimeoutError):
            error = deadline_exceeded()
        elif not isinstance(error, StatusError):
            error = StatusError.internal(error)
        status, message = _HTTP_STATUS.get(error.code, 500), error.message
    text = json.dumps({"error": shortened(message)}, ensure_ascii=False)
    return _json(text, status, {"connection": "close"})
