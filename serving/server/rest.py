"""The REST interface and the metrics page: an ASGI application over HTTP."""

import asyncio
import re
import urllib.parse
import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from google.protobuf.message import Message

from serving.client import protobuf
from serving.savedmodel.status import Code, StatusError, invalid
from serving.server import json_answers, json_requests
from serving.server.api import INFERENCE, Api
from serving.server.call import Call
from serving.server.predict import DEFAULT_SIGNATURE
from serving.server.servable import Servable
from serving.server.tracing import identify
from serving.server.workers import Pools

_HTTP_STATUS = {
    Code.INVALID_ARGUMENT: 400,
    Code.FAILED_PRECONDITION: 400,
    Code.OUT_OF_RANGE: 400,
    Code.UNAUTHENTICATED: 401,
    Code.PERMISSION_DENIED: 403,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.ABORTED: 409,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.CANCELLED: 499,
    Code.UNIMPLEMENTED: 501,
    Code.UNAVAILABLE: 503,
    Code.DEADLINE_EXCEEDED: 504,
}
_WHICH = r"(?:/versions/(?P<version>[0-9]+)|/labels/(?P<label>[^/:]+))?"
_POST = re.compile(
    rf"/v1/models/(?P<name>[^/:]+){_WHICH}:(?P<method>classify|regress|predict)", re.IGNORECASE
)
_GET = re.compile(rf"/v1/models(?:/(?P<name>[^/:]+))?{_WHICH}(?P<metadata>/metadata)?", re.I)
_JSON, _TEXT = "application/json", "text/plain; charset=utf-8"
_DIGITS_OF_INT64 = 19
_MOST_GZIP = 1032  # how much smaller gzip makes anything, at most

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class _TooLargeError(Exception):
    """The body is larger than the limit."""


class _GoneError(Exception):
    """The client closed the connection."""


class RestApp:
    """ASGI application of the REST interface.

    Args:
        api: answers the requests.
        pools: the threads that run it; status and metrics need none.
        timeout_ms: from a request's first byte to its answer, and again until the answer has been
            read; 0 for no limit.
        metrics_path: of the metrics page; None for no page.
        most_bytes: of a body, unpacked.
    """

    def __init__(
        self, api: Api, pools: Pools, timeout_ms: int, metrics_path: str | None, most_bytes: int
    ):
        self._api = api
        self._pools = pools
        self._seconds = timeout_ms / 1000 or None
        self._metrics_path = metrics_path
        self._most_bytes = most_bytes
        self._free_bytes = 2 * most_bytes  # of all bodies together

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        is_read = scope["method"] == "POST" or headers.get("content-length", "0") == "0"
        request_id, back = identify(headers)
        call = Call(self._seconds, "REST", request_id)
        try:
            async with asyncio.timeout(self._seconds):
                status, kind, content = await self._respond(scope, headers, receive, call)
        except _GoneError:
            return
        except TimeoutError:
            call.cancel()
            status, kind, content = _failed(504, "Timed out waiting for notification")
        head = {"content-type": kind, "content-length": str(len(content)), **back}
        if status >= 400 or not is_read or "transfer-encoding" in headers:
            # An unread body must not be parsed as a further request.
            head["connection"] = "close"
        # A client that does not read its answer loses the connection.
        async with asyncio.timeout(self._seconds):
            pairs = [(k.encode("latin-1"), v.encode("latin-1")) for k, v in head.items()]
            await send({"type": "http.response.start", "status": status, "headers": pairs})
            await send({"type": "http.response.body", "body": content})

    async def _respond(
        self, scope: Scope, headers: dict[str, str], receive: Receive, call: Call
    ) -> tuple[int, str, bytes]:
        """Status, content type and content of the answer."""
        if "transfer-encoding" in headers and "content-length" in headers:
            return _failed(400, "The body has both a length and a transfer encoding")
        # The path is split before percent-decoding.
        path = scope["raw_path"].decode("latin-1")
        if path == self._metrics_path:
            return 200, _TEXT, self._api.metrics.page().encode()
        if not path.lower().startswith("/v1/"):
            return 404, _TEXT, b""
        try:
            text = await self._answer(scope["method"], path, headers, receive, call)
        except UnicodeEncodeError:
            return _failed(400, "JSON Parse error: The surrogate pair in string is invalid.")
        except _TooLargeError:
            return _failed(413, f"The body is larger than {self._most_bytes} bytes")
        except (_GoneError, asyncio.CancelledError):
            raise
        except Exception as error:
            status = self._api.status_of(error, call)
            return _failed(_HTTP_STATUS.get(status.code, 500), status.message)
        # A model's strings need not be UTF-8: their bytes are sent unchanged.
        return 200, _JSON, text.encode("utf-8", "surrogateescape")

    async def _answer(
        self, method: str, path: str, headers: dict[str, str], receive: Receive, call: Call
    ) -> str:
        if method == "POST" and (match := _POST.fullmatch(path)):
            body = bytearray()
            try:
                await self._read(body, headers, receive)
                return await self._infer(match, headers, body, receive, call)
            finally:
                self._free_bytes += len(body)
        if method == "GET" and (match := _GET.fullmatch(path)):
            if not match["name"]:
                raise invalid("Missing model name in request.")
            spec = _model_spec(match)
            return self._metadata(spec) if match["metadata"] else self._status(spec)
        raise invalid(f"Malformed request: {method} {path[:256]}")

    async def _read(self, body: bytearray, headers: dict[str, str], receive: Receive) -> None:
        """Read a body. It may take as much as all bodies leave of their common memory.

        So large bodies always leave room for small ones.
        """
        length = headers.get("content-length", "0")
        if len(length) > _DIGITS_OF_INT64 or int(length) > self._most_bytes:
            raise _TooLargeError
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _GoneError
            body += message["body"]
            self._free_bytes -= len(message["body"])
            if len(body) > self._most_bytes:
                raise _TooLargeError
            if len(body) > self._free_bytes:
                raise StatusError(Code.UNAVAILABLE, "The server is overloaded: large bodies arrive")
            more = message["more_body"]

    async def _infer(
        self,
        match: re.Match[str],
        headers: dict[str, str],
        body: bytearray,
        receive: Receive,
        call: Call,
    ) -> str:
        spec = _model_spec(match)
        is_gzip = headers.get("content-encoding", "").lower() == "gzip"
        method = match["method"].capitalize()

        def work() -> str:
            call.check()
            document = json_requests.parse(_unpacked(body, self._most_bytes) if is_gzip else body)
            spec.signature_name = document.get("signature_name", "")
            if method == "Predict":
                return self._predict(spec, document, call)
            kind, _ = INFERENCE[method]
            request = kind(model_spec=spec, input=json_requests.read_examples(document))
            return json_answers.write_result(self._api.infer(method, request, call).result)

        size = len(body) * (_MOST_GZIP if is_gzip else 1)
        return await _while_connected(self._pools.run(size, work, call), receive)

    def _predict(self, spec: Message, document: dict, call: Call) -> str:
        name = spec.signature_name or DEFAULT_SIGNATURE

        def answer(servable: Servable) -> str:
            if name not in servable.signatures:
                raise invalid(
                    f'Serving signature name: "{name[:256]}" not found in signature def',
                )
            infos = servable.signatures[name].inputs
            if not infos:
                raise invalid(
                    f"Failed to get input map for signature: {spec.signature_name or 'DEFAULT'}",
                )
            inputs, row_format = json_requests.read_tensors(document, infos)
            request = protobuf.PredictRequest(model_spec=spec, inputs=inputs)
            response = self._api.answer("Predict", servable, request, call)
            return json_answers.write_tensors(response.outputs, row_format)

        return self._api.run(answer, spec, call, "Predict")

    def _status(self, spec: Message) -> str:
        request = protobuf.GetModelStatusRequest(model_spec=spec)
        return json_answers.write_message(self._api.get_model_status(request))

    def _metadata(self, spec: Message) -> str:
        request = protobuf.GetModelMetadataRequest(
            model_spec=spec, metadata_field=["signature_def"]
        )
        return json_answers.write_metadata(self._api.get_model_metadata(request))


def _failed(status: int, message: str) -> tuple[int, str, bytes]:
    return status, _JSON, json_answers.write_error(message).encode("utf-8", "replace")


def _unpacked(body: bytes | bytearray, most_bytes: int) -> bytearray:
    """Content of a gzip body, which may have several members."""
    content = bytearray()
    try:
        while body:
            member = zlib.decompressobj(wbits=31)
            content += member.decompress(body, most_bytes + 1 - len(content))
            if len(content) > most_bytes:
                raise _TooLargeError
            if not member.eof:
                raise zlib.error("the end is missing")
            body = member.unused_data
    except zlib.error as error:
        raise invalid("The body is not in gzip format") from error
    return content


async def _while_connected(work: Awaitable[str], receive: Receive) -> str:
    """Return the result of `work`; cancel it when the client leaves."""
    running, gone = asyncio.ensure_future(work), asyncio.ensure_future(receive())
    try:
        await asyncio.wait({running, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            raise _GoneError
        return running.result()
    finally:
        gone.cancel()
        running.cancel()


def _model_spec(match: re.Match) -> Message:
    spec = protobuf.ModelSpec(name=urllib.parse.unquote(match["name"]))
    if version := match["version"]:
        if len(version.lstrip("0")) > _DIGITS_OF_INT64 or int(version) >= 2**63:
            raise invalid(f"Failed to convert version: {version[:256]} to numeric.")
        spec.version.value = int(version)
    if match["label"]:
        spec.version_label = urllib.parse.unquote(match["label"])
    return spec
