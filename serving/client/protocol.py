"""The protocol of all clients, blocking and async: which requests to send, how to read responses.

The protocol is written once, as generators without input or output. A generator yields `(method,
request, seconds)` to send a request, and receives the response, or a `ServingError` that is thrown
into it. It yields a number to pause for so many seconds. `serving.client.transport` runs the
generators. Clients of a kind of model call `Endpoint.predict` with functions that write requests
and read responses: see `serving.client.clients`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from serving.api.arguments import MOST_RETRIES, check_count, check_seconds, check_text
from serving.api.errors import (
    DeadlineExceededError,
    InvalidRequestError,
    MessageTooLargeError,
    RateLimitedError,
    ServerUnavailableError,
    UnexpectedResponseError,
)
from serving.api.results import Metadata
from serving.client import protobuf
from serving.client.serving_pb2 import (
    GetModelMetadataRequest,
    GetModelMetadataResponse,
    GetModelStatusRequest,
    GetModelStatusResponse,
    ModelSpec,
    PredictRequest,
    PredictResponse,
    SignatureDefMap,
)

PREDICT = "/tensorflow.serving.PredictionService/Predict"
_METADATA = "/tensorflow.serving.PredictionService/GetModelMetadata"
_STATUS = "/tensorflow.serving.ModelService/GetModelStatus"
RESPONSES = {
    PREDICT: PredictResponse,
    _METADATA: GetModelMetadataResponse,
    _STATUS: GetModelStatusResponse,
}
_AVAILABLE = 30
_READY_POLL = 0.2  # seconds
_BATCH_LIMIT = re.compile(r"maximum input batch size (\d{1,9})\b")

T = TypeVar("T")
R = TypeVar("R")
Steps = Generator[tuple[str, Message, float] | float, Any, T]


@dataclass(frozen=True)
class Tls:
    """Files of an encrypted connection, all PEM.

    Args:
        root_certificates: certificates of the authorities to trust; None means the system's.
        certificate, private_key: the client's own, if the server asks for them.
        server_name: the name in the server's certificate, if it differs from the target's.
    """

    root_certificates: str | Path | None = None
    certificate: str | Path | None = None
    private_key: str | Path | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for a certificate without its key, or a key alone: gRPC would abort."""
        if (self.certificate is None) != (self.private_key is None):
            raise ValueError("expected a certificate with its private key. Received: one of them")


class Endpoint:
    """A model on a server, and the requests that all kinds of models answer.

    Args:
        target: `host:port`, `unix:PATH`, or `dns:///NAME:PORT`, which spreads the requests over all
            addresses of the name.
        model: the model's name on the server.
        version, label: select a version by number or label; neither means the latest.
        timeout: seconds for each request, including its retries.
        tls: False for plain text, True for the system's certificates, or a `Tls`.
        batch_size: most rows in a request. Longer lists are sent in several requests, with fewer
            rows each if the server has a lower limit.
        retries: further attempts, at most 4, if the server is unavailable or overloaded, with
            growing pauses. All requests share a budget of retries.

    Raises TypeError or ValueError for a wrong argument, OSError for a file of `tls`.
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
        retries: int = MOST_RETRIES,
    ):
        if version is not None and label is not None:
            raise ValueError(f"expected a version or a label. Received: {version} and {label!r}")
        for name, value in (("target", target), ("model", model), ("label", label)):
            if value is not None or name != "label":
                check_text(name, value)
        if version is not None:
            check_count("version", version, 0, 2**63 - 1)
        check_seconds("timeout", timeout)
        check_count("batch_size", batch_size, 1)
        check_count("retries", retries, 0, MOST_RETRIES)
        self.target, self.model = target, model
        self._version, self._label, self._timeout = version, label, timeout
        self._batch_size, self._retries = batch_size, retries
        self._tls = Tls() if tls is True else tls or None

    def predict(
        self,
        signature: str,
        rows: Sequence[R],
        write: Callable[[Sequence[R]], dict[str, Message]],
        read: Callable[[Message, int], list[T]],
        size: Callable[[Any], int] = len,
    ) -> Steps[list[T]]:
        """Return the answer for each row, in order. Rows are sent in batches the server accepts.

        Args:
            signature: the name of the signature.
            rows: any number of rows.
            write: returns the inputs of a request, TensorProtos by name, for the rows of a batch.
            read: returns an answer for each row, given a PredictResponse and its number of rows.
            size: returns the size of a row. A batch takes as long as its longest row, so rows are
                sorted by size before they are divided into batches.
        """
        order = sorted(range(len(rows)), key=lambda number: size(rows[number]))
        results: list[T] = []
        most = self._batch_size
        while len(results) < len(order):
            batch = [rows[number] for number in order[len(results) : len(results) + most]]
            request = PredictRequest(model_spec=self._spec(signature))
            for name, tensor in write(batch).items():
                request.inputs[name].CopyFrom(tensor)
            try:
                response = yield PREDICT, request, self._timeout
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
        """Return the ModelSpec of a request: name, version or label, signature."""
        spec = ModelSpec(name=self.model, signature_name=signature)
        if self._version is not None:
            spec.version.value = self._version
        if self._label is not None:
            spec.version_label = self._label
        return spec

    def _metadata(self) -> Steps[Metadata]:
        """Return the version and the signatures of the served model."""
        request = GetModelMetadataRequest(model_spec=self._spec(), metadata_field=["signature_def"])
        response = yield _METADATA, request, self._timeout
        signatures = SignatureDefMap()
        with suppress(DecodeError):
            signatures.ParseFromString(response.metadata["signature_def"].value)
        if not signatures.signature_def:
            raise UnexpectedResponseError(f"the server at {self.target} sent no signatures")
        spec = response.model_spec
        described = {
            name: {
                "inputs": {alias: _tensor_text(i) for alias, i in signature.inputs.items()},
                "outputs": {alias: _tensor_text(o) for alias, o in signature.outputs.items()},
            }
            for name, signature in sorted(signatures.signature_def.items())
            if not name.startswith("__")
        }
        return Metadata(spec.name, spec.version.value, described)

    def _until_ready(self, timeout: float = 60.0) -> Steps[None]:
        """Return when the model is available.

        Raises ModelNotFoundError if the server answers that it has no such model, and
        DeadlineExceededError after `timeout` seconds.
        """
        check_seconds("timeout", timeout)
        request = GetModelStatusRequest(model_spec=self._spec())
        end = time.monotonic() + timeout
        while (left := end - time.monotonic()) > 0:
            with suppress(ServerUnavailableError, RateLimitedError, DeadlineExceededError):
                response = yield _STATUS, request, min(left, self._timeout)
                if any(each.state == _AVAILABLE for each in response.model_version_status):
                    return
            yield min(_READY_POLL, left)
        raise DeadlineExceededError(
            f"model {self.model!r} was not available at {self.target} within {timeout:g} s: "
            "wait longer while it loads, or check that it runs, its log and the model's name"
        )


def _tensor_text(info: Message) -> str:
    """Return dtype and shape of a TensorInfo as text: `float(?, 3)`."""
    dims = ", ".join("?" if dim.size < 0 else str(dim.size) for dim in info.tensor_shape.dim)
    name, *_ = protobuf.DTYPES.get(info.dtype, (f"type {info.dtype}",))
    return f"{name}({dims})"
