"""Answers requests over gRPC and REST, and serves the metrics page."""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

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

from serving.api._http import Guard, unless_gone
from serving.api._versions import version_number
from serving.client import serving_pb2
from serving.client._protobuf import SIGNATURES
from serving.client.serving_pb2 import GetModelMetadataResponse, SignatureDefMap
from serving.loaded._status import Code, StatusError, Waiting, deadline_exceeded, invalid, shortened
from serving.server import _tensors as tensors
from serving.server._calls import Call, Metrics, Task, Workers
from serving.server._models import Models
from serving.server._tensors import Arrays, Limits

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
_text = partial(  # of a protocol message, as JSON with the field names of its definition
    json_format.MessageToJson,
    preserving_proto_field_name=True,
    always_print_fields_with_no_presence=True,
)
_LARGE_BYTES = 2**16  # a larger request is read in a thread
_VALUE_BYTES = 2**5  # of a JSON value, at least: so long do others take to be read


@dataclass(frozen=True)
class Service:
    """Answers requests within the limits, by workers."""

    models: Models
    metrics: Metrics
    workers: Workers
    limits: Limits

    async def predict(self, call: Call, size: int, read: Callable[[], Task]) -> Any:
        """Return the response to a request of `size` bytes, whose task `read` returns.

        A large request is expensive, and is read only when its turn comes. Raises StatusError.
        """
        with self._counted(call):
            if size > _LARGE_BYTES:
                call.cost, call.read = size, read
            else:
                task = read()
                call.cost, call.read = tensors.cost(task.inputs), lambda: task
                if self.workers.most_rows:
                    call.batch, call.rows = (task.kind(), call.is_expensive), task.rows()
            return await self.workers.run(call)

    def task(
        self,
        call: Call,
        choice: _Choice,
        signature: str,
        read: Callable[[Mapping[str, Message]], Arrays],
        write: Callable[[int, Arrays], Any],
        names: Sequence[str] = (),
    ) -> Task:
        """Return what a request asks of a model, which stays loaded until the call's response.

        Args:
            call: the request.
            choice: the model and its version.
            signature: its name, "" for the default.
            read: returns the input arrays, given the TensorInfos of the inputs by alias.
            write: returns the response, given the number of the version and the outputs by alias.
            names: of the outputs to return; none means all.

        Raises StatusError.
        """
        call.model = choice[0]
        number, model = call.held.enter_context(self.models.acquire(*choice))
        key = signature or _DEFAULT_SIGNATURE
        if key not in model.signatures:
            message = f'Serving signature key "{key}" not found.'
            raise StatusError(Code.FAILED_PRECONDITION, message)
        about = model.signatures[key]
        if len({*names} & {*about.outputs}) != len(names):
            expected = f"some of the outputs {sorted(about.outputs)}, each once"
            raise invalid(f"expected {expected}. Received: {sorted(names)}")
        inputs = read(about.inputs)
        tensors.check_shapes(inputs, about.inputs, self.limits)

        def run(inputs: Arrays, waiting: Waiting) -> Arrays:
            started = time.perf_counter()
            outputs = model.run(key, inputs, waiting)
            _observe(self.metrics.runtime.labels(choice[0], "Predict"), started)
            return outputs

        def respond(outputs: Arrays) -> Any:
            return write(number, {alias: outputs[alias] for alias in names or outputs})

        task = Task((id(model), key), run, inputs, respond)
        if self.workers.most_rows:
            tensors.check_rows(task.rows(), self.workers.most_rows)
        return task

    @contextmanager
    def _counted(self, call: Call) -> Iterator[None]:
        """Count a request with its status and time; at its end, let go of its model."""
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
            call.response.cancel()  # of a call that is not run
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
    """The methods of both gRPC services."""

    service: Service

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """Return the handlers for `grpc.aio.Server.add_generic_rpc_handlers`."""

        def handler(service: str, **methods: _Method) -> grpc.GenericRpcHandler:
            handlers = {
                name: grpc.unary_unary_rpc_method_handler(partial(self._answer, method))
                for name, method in methods.items()
            }
            return grpc.method_handlers_generic_handler(f"tensorflow.serving.{service}", handlers)

        return [
            handler("PredictionService", Predict=self._predict, GetModelMetadata=self._metadata),
            handler("ModelService", GetModelStatus=self._status),
        ]

    async def _answer(
        self, method: _Method, data: bytes, context: grpc.aio.ServicerContext
    ) -> bytes | None:
        """Return the serialized response of a method; end the call with a status if it fails."""
        left, most = context.time_remaining(), self.service.limits.seconds
        call = Call(most if left is None else min(left, most), client=context.peer())
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
        return await self.service.predict(call, len(data), partial(self._read, data, call))

    def _read(self, data: bytes, call: Call) -> Task:
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

        return self.service.task(
            call,
            _choice_of_spec(request),
            spec.signature_name,
            partial(tensors.read_tensors, request.inputs, limits=self.service.limits),
            write,
            list(request.output_filter),
        )

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
    """The REST endpoints."""

    service: Service

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
        limits, choice, body = self.service.limits, _choice_of_path(request), bytearray()
        if (encoding := request.headers.get("content-encoding", "identity")) != "identity":
            raise invalid(f"expected no Content-Encoding. Received: {encoding[:100]}")
        call = Call(limits.seconds, "REST", request.client)
        async with asyncio.timeout(limits.seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limits.bytes:
                    raise HTTPException(_TOO_LARGE, f"The body is larger than {limits.bytes} bytes")
        size = max(len(body), _VALUE_BYTES * body.count(b","))
        answer = self.service.predict(call, size, partial(self._read, choice, body, call))
        return _json(await unless_gone(request, answer))

    def _read(self, choice: _Choice, body: bytearray, call: Call) -> Task:
        document = tensors.parse(body)

        def write(_: int, outputs: Arrays) -> str:
            return tensors.write_outputs(outputs, rows="instances" in document)

        read = partial(tensors.read_inputs, document)
        return self.service.task(call, choice, document.get("signature_name", ""), read, write)

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


def _choice_of_path(request: Request) -> _Choice:
    version = request.path_params.get("version")
    number = version_number(version) if version else None
    if version and number is None:
        raise invalid(f"Failed to convert version: {version[:100]} to numeric.")
    return request.path_params["name"], number


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
