"""Answers requests over gRPC and REST, and serves the metrics page."""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
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

from serving.api.disconnects import unless_gone
from serving.client import serving_pb2
from serving.client.protobuf import SIGNATURES
from serving.client.serving_pb2 import GetModelMetadataResponse, SignatureDefMap
from serving.savedmodel.status import Code, StatusError, deadline_exceeded, invalid, shortened
from serving.server import calls, tensors
from serving.server.calls import Batcher, Call, HeavyError, Metrics, Workers
from serving.server.models import Models
from serving.server.tensors import Arrays, Limits

DEFAULT_SIGNATURE = "serving_default"
Choice = tuple[str, int | None]  # a model and its version, None for the newest
log = logging.getLogger(__name__)
Method = Callable[[bytes, Call], Awaitable[Message]]
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
_MOST_DIGITS = 19  # of an int64


@dataclass(frozen=True)
class Service:
    """Answers requests within the limits, in worker threads; joins them if it has a batcher."""

    models: Models
    metrics: Metrics
    workers: Workers
    batcher: Batcher | None
    limits: Limits

    def predict(
        self,
        choice: Choice,
        signature_name: str,
        call: Call,
        read: Callable[[Mapping[str, Message]], Arrays],
        names: Sequence[str] = (),
    ) -> tuple[int, Arrays]:
        """Return the number of the version that answers, and its outputs by alias.

        Args:
            choice: the model's name and version.
            signature_name: "" means the default signature.
            call: the request.
            read: returns the input arrays, given the TensorInfos of the inputs by alias.
            names: aliases of the outputs to return; none means all.

        Raises StatusError, or HeavyError for a heavy request that runs among light requests.
        """
        name, started = choice[0], time.perf_counter()
        code: Code | None = Code.INTERNAL
        try:
            if not call.seconds_left():
                raise deadline_exceeded()
            with self.models.acquire(*choice) as (number, model):
                key = signature_name or DEFAULT_SIGNATURE
                if key not in model.signatures:
                    message = f'Serving signature key "{key}" not found.'
                    raise StatusError(Code.FAILED_PRECONDITION, message)
                signature = model.signatures[key]
                if len({*names} & {*signature.outputs}) != len(names):
                    expected = f"some of the outputs {sorted(signature.outputs)}, each once"
                    raise invalid(f"expected {expected}. Received: {sorted(names)}")
                inputs = read(signature.inputs)
                tensors.check_shapes(inputs, signature.inputs, self.limits)
                if (size := tensors.cost(inputs)) > calls.LIGHT_COST and not call.is_heavy:
                    raise HeavyError(size)
                ran, run = time.perf_counter(), partial(model.run, key)
                if self.batcher:
                    outputs = self.batcher.run((id(model), key), run, inputs, call)
                    outputs = {alias: outputs[alias] for alias in names or outputs}
                else:
                    outputs = run(inputs, names, call)
                _observe(self.metrics.runtime.labels(name, "Predict"), ran)
            code = Code.OK
            return number, outputs
        except StatusError as error:
            code = error.code
            raise
        except HeavyError:  # the restarted request is counted
            code = None
            raise
        finally:
            # Clients may send any name. Only names of the configuration become labels.
            label = name if self.models.has(name) else ""
            if code is not None:
                self.metrics.requests.labels(label, code.name).inc()
                _observe(self.metrics.latency.labels(label, "Predict", call.entrypoint), started)

    def metadata(self, choice: Choice) -> Message:
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

        def handler(service: str, **methods: Method) -> grpc.GenericRpcHandler:
            answers = {name: partial(self._answer, method) for name, method in methods.items()}
            handlers = {n: grpc.unary_unary_rpc_method_handler(a) for n, a in answers.items()}
            return grpc.method_handlers_generic_handler(f"tensorflow.serving.{service}", handlers)

        return [
            handler("PredictionService", Predict=self._predict, GetModelMetadata=self._metadata),
            handler("ModelService", GetModelStatus=self._status),
        ]

    async def _answer(
        self, method: Method, data: bytes, context: grpc.aio.ServicerContext
    ) -> bytes | None:
        """Return the serialized response of a method; end the call with a status if it fails."""
        left = context.time_remaining()
        seconds = self.seconds if left is None else min(left, self.seconds)
        call = Call(seconds, client=context.peer())
        try:
            return (await method(data, call)).SerializeToString()
        except DecodeError:
            error = invalid("The message of the request cannot be parsed")
        except StatusError as status:
            error = status
        except Exception as failure:
            log.exception("A request failed inside the server")
            error = StatusError.internal(failure)
        await context.abort(_CODES[error.code], shortened(error.message))
        return None  # not reached: abort raises

    async def _predict(self, data: bytes, call: Call) -> Message:
        return await self.service.workers.run(lambda: self._outputs(data, call), call, len(data))

    def _outputs(self, data: bytes, call: Call) -> Message:
        request = serving_pb2.PredictRequest.FromString(data)
        choice, spec = _choice_of_spec(request), request.model_spec
        read = partial(tensors.read_tensors, request.inputs, limits=self.service.limits)
        names = list(request.output_filter)
        version, outputs = self.service.predict(choice, spec.signature_name, call, read, names)
        response = serving_pb2.PredictResponse()
        for alias, array in outputs.items():
            response.outputs[alias].CopyFrom(tensors.to_proto(array))
        response.model_spec.name = spec.name
        response.model_spec.signature_name = spec.signature_name or DEFAULT_SIGNATURE
        response.model_spec.version.value = version
        return response

    async def _metadata(self, data: bytes, call: Call) -> Message:
        request = serving_pb2.GetModelMetadataRequest.FromString(data)
        choice = _choice_of_spec(request)
        if {*request.metadata_field} != {"signature_def"}:
            received = list(request.metadata_field)
            raise invalid(f"metadata_field expected signature_def. Received: {received}")
        return self.service.metadata(choice)

    async def _status(self, data: bytes, call: Call) -> Message:
        request = serving_pb2.GetModelStatusRequest.FromString(data)
        return self.service.models.status(*_choice_of_spec(request))


def _choice_of_spec(request: Any) -> Choice:
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

    def app(self, metrics: str, origins: Sequence[str]) -> Starlette:
        """Return the application.

        Args:
            metrics: path of the metrics page; "" means no such page.
            origins: origins whose pages may send requests (CORS).
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
        return app

    async def _predict(self, request: Request) -> Response:
        choice, call = _choice_of_path(request), Call(self.seconds, "REST", request.client)

        def work() -> str:
            document = tensors.parse(body)
            name = document.get("signature_name", "")
            read = partial(tensors.read_inputs, document)
            _, outputs = self.service.predict(choice, name, call, read)
            return tensors.write_outputs(outputs, rows="instances" in document)

        body, most = bytearray(), self.service.limits.bytes
        async with asyncio.timeout(self.seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise HTTPException(_TOO_LARGE, f"The body is larger than {most} bytes")
            answer = self.service.workers.run(work, call, len(body))
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


def _choice_of_path(request: Request) -> Choice:
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
