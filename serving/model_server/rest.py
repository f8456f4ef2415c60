"""The REST interface and the metrics page, over HTTP."""

import gzip
import logging
import re
import socket
import threading
import urllib.parse
import zlib
from collections.abc import Callable

from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_pb2,
    predict_pb2,
    regression_pb2,
)
from werkzeug.exceptions import HTTPException
from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler
from werkzeug.wrappers import Request, Response

from serving.model_server import json_answers, json_requests
from serving.model_server.api import Api
from serving.model_server.predict import DEFAULT_SIGNATURE
from serving.status import Code, StatusError

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
_WHICH = r"(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
_POST = re.compile(
    rf"/v1/models/(?P<name>[^/:]+){_WHICH}:(?P<method>classify|regress|predict)", re.IGNORECASE
)
_GET = re.compile(rf"/v1/models(?:/(?P<name>[^/:]+))?{_WHICH}(?P<metadata>/metadata)?", re.I)
_JSON = "application/json"

log = logging.getLogger(__name__)


class RestApp:
    """WSGI application of the REST interface.

    Args:
        api: answers the requests.
        timeout_ms: of each.
        metrics_path: where metrics are, or None for nowhere.
    """

    def __init__(self, api: Api, timeout_ms: int, metrics_path: str | None):
        self._api = api
        self._timeout_ms = timeout_ms
        self._metrics_path = metrics_path
        self._idle = threading.Condition()
        self._under_way = 0

    @Request.application
    def __call__(self, request: Request) -> Response:
        """Answer one request."""
        with self._idle:
            self._under_way += 1
        try:
            return self._respond(request)
        finally:
            with self._idle:
                self._under_way -= 1
                self._idle.notify_all()

    def wait_idle(self, seconds: float) -> None:
        """Return when no request is under way, or after `seconds`."""
        with self._idle:
            self._idle.wait_for(lambda: not self._under_way, seconds)

    def _respond(self, request: Request) -> Response:
        # Percent signs are decoded after the path is taken apart.
        path = urllib.parse.urlsplit(request.environ.get("REQUEST_URI", request.path)).path
        if path == self._metrics_path:
            return Response(self._api.metrics.page(), content_type="text/plain")
        if not path.lower().startswith("/v1/"):
            return Response(status=404)
        try:
            return _json(self._answer(request, path))
        except StatusError as error:
            status = _HTTP_STATUS.get(error.code, 500)
            return _json(json_answers.write_error(error.message), status)
        except HTTPException as error:
            return _json(json_answers.write_error(str(error)), error.code or 500)
        except Exception as error:
            log.exception("A request failed inside the server")
            return _json(json_answers.write_error(f"{type(error).__name__}: {error}"), 500)

    def _answer(self, request: Request, path: str) -> str:
        if request.method == "POST" and (match := _POST.fullmatch(path)):
            spec = _model_spec(match)
            document = json_requests.parse(_body(request))
            spec.signature_name = document.get("signature_name", "")
            methods: dict[str, Callable[[model_pb2.ModelSpec, dict], str]] = {
                "predict": self._predict,
                "classify": self._classify,
                "regress": self._regress,
            }
            return methods[match["method"].lower()](spec, document)
        if request.method == "GET" and (match := _GET.fullmatch(path)):
            if not match["name"]:
                raise StatusError(Code.INVALID_ARGUMENT, "Missing model name in request.")
            spec = _model_spec(match)
            return self._metadata(spec) if match["metadata"] else self._status(spec)
        raise StatusError(Code.INVALID_ARGUMENT, f"Malformed request: {request.method} {path}")

    def _predict(self, spec: model_pb2.ModelSpec, document: dict) -> str:
        name = spec.signature_name or DEFAULT_SIGNATURE
        with self._api.manager.acquire(spec) as servable:
            if name not in servable.session.signatures:
                raise StatusError(
                    Code.INVALID_ARGUMENT,
                    f'Serving signature name: "{name}" not found in signature def',
                )
            infos = servable.session.signatures[name].inputs
            if not infos:
                raise StatusError(
                    Code.INVALID_ARGUMENT,
                    f"Failed to get input map for signature: {spec.signature_name or 'DEFAULT'}",
                )
            inputs, row_format = json_requests.read_tensors(document, infos)
        predict = predict_pb2.PredictRequest(model_spec=spec, inputs=inputs)
        response = self._api.predict(predict, self._timeout_ms, "REST")
        return json_answers.write_tensors(response.outputs, row_format)

    def _classify(self, spec: model_pb2.ModelSpec, document: dict) -> str:
        request = classification_pb2.ClassificationRequest(
            model_spec=spec, input=json_requests.read_examples(document)
        )
        response = self._api.classify(request, self._timeout_ms, "REST")
        return json_answers.write_classifications(response.result)

    def _regress(self, spec: model_pb2.ModelSpec, document: dict) -> str:
        request = regression_pb2.RegressionRequest(
            model_spec=spec, input=json_requests.read_examples(document)
        )
        response = self._api.regress(request, self._timeout_ms, "REST")
        return json_answers.write_regressions(response.result)

    def _status(self, spec: model_pb2.ModelSpec) -> str:
        request = get_model_status_pb2.GetModelStatusRequest(model_spec=spec)
        return json_answers.write_message(self._api.get_model_status(request))

    def _metadata(self, spec: model_pb2.ModelSpec) -> str:
        request = get_model_metadata_pb2.GetModelMetadataRequest(
            model_spec=spec, metadata_field=["signature_def"]
        )
        return json_answers.write_metadata(self._api.get_model_metadata(request))


def _json(text: str, status: int = 200) -> Response:
    # Strings of a model need not be UTF-8; their bytes go out as they are.
    return Response(text.encode("utf-8", "surrogateescape"), status, content_type=_JSON)


def _body(request: Request) -> bytes:
    body = request.get_data(cache=False)
    if request.headers.get("Content-Encoding", "").lower() == "gzip":
        try:
            return gzip.decompress(body)
        except (OSError, EOFError, zlib.error) as error:
            raise StatusError(Code.INVALID_ARGUMENT, "The body is not in gzip format") from error
    return body


def _model_spec(match: re.Match) -> model_pb2.ModelSpec:
    spec = model_pb2.ModelSpec(name=urllib.parse.unquote(match["name"]))
    if match["version"]:
        version = int(match["version"])
        if version >= 2**63:
            raise StatusError(
                Code.INVALID_ARGUMENT, f"Failed to convert version: {version} to numeric."
            )
        spec.version.value = version
    if match["label"]:
        spec.version_label = urllib.parse.unquote(match["label"])
    return spec


class _Handler(WSGIRequestHandler):
    timeout = 60  # seconds for which a client may be silent

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Requests are in the metrics, not in the log."""


class RestServer:
    """`app` on a port, in threads of its own. Raises OSError where the port is taken."""

    def __init__(self, app: RestApp, host: str, port: int):
        self._app = app
        with socket.create_server((host, port)) as listening:
            self._server = ThreadedWSGIServer(host, port, app, _Handler, fd=listening.fileno())
        self.port = self._server.port
        self._thread = threading.Thread(target=self._server.serve_forever, name="rest")
        self._thread.start()

    def close(self, seconds: float) -> None:
        """Take no new requests; return when those under way have ended, or after `seconds`."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._app.wait_idle(seconds)
