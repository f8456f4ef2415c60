"""The REST interface and the metrics page."""

import asyncio
import json
from dataclasses import dataclass
from functools import partial
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message
from prometheus_client import generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from serving.client.serving_pb2 import SignatureDefMap
from serving.savedmodel.status import Code, StatusError, invalid, shortened
from serving.server.calls import Call, deadline_exceeded
from serving.server.json_tensors import parse, read_inputs, write_outputs
from serving.server.service import Choice, Service

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
class Rest:
    """The endpoints; a request may take `seconds` from its head to its answer."""

    service: Service
    seconds: float
    most_bytes: int

    def app(self, metrics_path: str | None) -> Starlette:
        """The application; without a path it has no metrics page."""
        routes = []
        for path in ("/v1/models/{name}/versions/{version}", "/v1/models/{name}"):
            routes += [
                Route(f"{path}:predict", self._predict, methods=["POST"]),
                Route(f"{path}/metadata", self._metadata),
                Route(path, self._status),
            ]
        if metrics_path:
            routes.append(Route(metrics_path, self._metrics))
        handled = (StatusError, TimeoutError, HTTPException, ClientDisconnect, Exception)
        return Starlette(routes=routes, exception_handlers=dict.fromkeys(handled, _failure))

    async def _predict(self, request: Request) -> Response:
        choice, call = _choice(request), Call(self.seconds, "REST")

        def work() -> str:
            document = parse(body)
            name = document.get("signature_name", "")
            read = partial(read_inputs, document)
            _, outputs = self.service.predict(choice, name, call, read)
            return write_outputs(outputs, rows="instances" in document)

        async with asyncio.timeout(self.seconds):
            body = await self._read(request)
            return _json(await self.service.workers.run(work, call))

    async def _read(self, request: Request) -> bytearray:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > self.most_bytes:
                raise HTTPException(_TOO_LARGE, f"The body is larger than {self.most_bytes} bytes")
        return body

    async def _status(self, request: Request) -> Response:
        return _json(_text(self.service.models.status(*_choice(request))))

    async def _metadata(self, request: Request) -> Response:
        response: Any = self.service.metadata(_choice(request))
        signatures = SignatureDefMap.FromString(response.metadata["signature_def"].value)
        spec, about = _text(response.model_spec), _text(signatures)
        return _json(f'{{"model_spec": {spec}, "metadata": {{"signature_def": {about}}}}}')

    async def _metrics(self, _: Request) -> Response:
        page = generate_latest(self.service.metrics.registry)
        return Response(page, media_type="text/plain; version=0.0.4")


def _choice(request: Request) -> Choice:
    version = request.path_params.get("version")
    if version is None:
        return request.path_params["name"], None
    if not (version.isascii() and version.isdecimal()) or len(version) > _MOST_DIGITS:
        raise invalid(f"Failed to convert version: {version[:100]} to numeric.")
    return request.path_params["name"], int(version)


def _text(message: Message) -> str:
    """The JSON of a protocol message, with its own field names."""
    return json_format.MessageToJson(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def _json(text: str, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(text.encode("utf-8", "replace"), status, headers, "application/json")


async def _failure(request: Request, error: Exception) -> Response:
    """The answer to a request that failed.

    Its connection ends, since the rest of a body would be read as a request.
    """
    if isinstance(error, HTTPException):  # no route fits, or a body is too large
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
