"""The REST interface and the metrics page."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from serving.client import serving_pb2
from serving.savedmodel.status import Code, StatusError, invalid, shortened
from serving.server.calls import Call, deadline_exceeded
from serving.server.json_tensors import parse, read_tensors, write_tensors
from serving.server.predict import DEFAULT_SIGNATURE, Servable
from serving.server.service import Service

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
_MOST_DIGITS = 19  # of an int64

log = logging.getLogger(__name__)
Endpoint = Callable[[Request], Awaitable[str]]


class Rest:
    """The endpoints.

    Args:
        service: answers the requests.
        seconds: from a request's head to its answer.
        most_bytes: of a body.
    """

    def __init__(self, service: Service, seconds: float, most_bytes: int):
        self._service = service
        self._seconds = seconds
        self._most_bytes = most_bytes

    def app(self, metrics_path: str | None) -> Starlette:
        """The application; without a path it has no metrics page."""
        routes = []
        for path in ("/v1/models/{name}/versions/{version}", "/v1/models/{name}"):
            routes += [
                Route(f"{path}:predict", self._with_status(self._predict), methods=["POST"]),
                Route(f"{path}/metadata", self._with_status(self._metadata)),
                Route(path, self._with_status(self._status)),
            ]
        if metrics_path:
            routes.append(Route(metrics_path, self._metrics))
        return Starlette(routes=routes, exception_handlers={HTTPException: _malformed})

    def _with_status(self, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            try:
                async with asyncio.timeout(self._seconds):
                    return Response(await endpoint(request), media_type="application/json")
            except TimeoutError:
                return _failed(504, deadline_exceeded().message)
            except ClientDisconnect:
                return Response(status_code=499)
            except StatusError as error:
                return _failed(_HTTP_STATUS.get(error.code, 500), error.message)
            except HTTPException as error:
                return _failed(error.status_code, error.detail)
            except Exception as error:
                log.exception("A request failed inside the server")
                return _failed(500, StatusError.internal(error).message)

        return respond

    async def _predict(self, request: Request) -> str:
        name, version = _choice(request)
        call = Call(self._seconds, "REST")
        body = await self._read(request)

        def work() -> str:
            document = parse(body)
            signature_name = document.get("signature_name") or DEFAULT_SIGNATURE

            def answer(servable: Servable) -> str:
                infos = servable.signature(signature_name).inputs
                inputs, rows = read_tensors(document, infos)
                tensors = serving_pb2.PredictRequest(inputs=inputs)
                tensors.model_spec.signature_name = signature_name
                return write_tensors(servable.predict(tensors, call).outputs, rows)

            return self._service.run(name, version, call, answer)

        return await self._service.workers.run(work, call)

    async def _read(self, request: Request) -> bytearray:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > self._most_bytes:
                raise HTTPException(413, f"The body is larger than {self._most_bytes} bytes")
        return body

    async def _status(self, request: Request) -> str:
        return _json(self._service.manager.status(*_choice(request)))

    async def _metadata(self, request: Request) -> str:
        response: Any = self._service.metadata(*_choice(request))
        signatures = serving_pb2.SignatureDefMap.FromString(
            response.metadata["signature_def"].value
        )
        return (
            f'{{\n"model_spec":{_json(response.model_spec)},\n'
            f'"metadata": {{"signature_def": {_json(signatures)}}}\n}}\n'
        )

    async def _metrics(self, _: Request) -> Response:
        return Response(self._service.metrics.page(), media_type="text/plain; version=0.0.4")


def _choice(request: Request) -> tuple[str, int | None]:
    """The model and version in a request's path, None for the newest."""
    version = request.path_params.get("version")
    if version is None:
        return request.path_params["name"], None
    if not (version.isascii() and version.isdecimal()) or len(version) > _MOST_DIGITS:
        raise invalid(f"Failed to convert version: {version[:100]} to numeric.")
    return request.path_params["name"], int(version)


def _json(message: Message) -> str:
    """A protocol message with its own field names."""
    return json_format.MessageToJson(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def _failed(status: int, message: str) -> Response:
    """An error. Its connection ends, since the rest of a body would be read as a request."""
    text = json.dumps({"error": shortened(message)}, ensure_ascii=False)
    content = text.encode("utf-8", "replace")
    return Response(content, status, {"connection": "close"}, "application/json")


async def _malformed(request: Request, error: Exception) -> Response:
    """The answer where no route fits."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    return _failed(status, f"Malformed request: {request.method} {request.url.path[:256]}")
