"""The requests and responses of all clients, blocking and async, without input or output.

Clients send the requests of a `Call` one after another, and give it the responses, until it has an
answer for each row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, Generic, TypeVar

from google.protobuf.message import DecodeError, Message

from serving.api._errors import (
    DeadlineExceededError,
    InvalidRequestError,
    MessageTooLargeError,
    ServingError,
    UnexpectedResponseError,
)
from serving.api._results import Metadata
from serving.client import _protobuf as protobuf
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
METADATA = "/tensorflow.serving.PredictionService/GetModelMetadata"
STATUS = "/tensorflow.serving.ModelService/GetModelStatus"
RESPONSES = {
    PREDICT: PredictResponse,
    METADATA: GetModelMetadataResponse,
    STATUS: GetModelStatusResponse,
}
_AVAILABLE = 30
READY_POLL = 0.2  # seconds
_BATCH_LIMIT = re.compile(r"maximum input batch size (\d{1,9})\b")

T = TypeVar("T")
R = TypeVar("R")


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
            raise ValueError(
                "a client's certificate needs its private key, and the key its certificate"
            )


@dataclass(frozen=True)
class Query(Generic[R, T]):
    """Rows to send to a signature, and how to write them and to read their answers.

    Attributes:
        signature: the name of the signature.
        rows: any number of rows.
        write: returns the inputs of a request, TensorProtos by name, for the rows of a batch.
        read: returns an answer for each row, given a PredictResponse and its number of rows.
        size: returns the size of a row. A batch takes as long as its longest row, so rows are
            sorted by size before they are divided into batches.
        keeps_errors: whether a row that the model rejects has its error as its answer.
    """

    signature: str
    rows: Sequence[R]
    write: Callable[[Sequence[R]], dict[str, Message]]
    read: Callable[[Message, int], Sequence[T]]
    size: Callable[[Any], int] = len
    keeps_errors: bool = False


class Call(Generic[R, T]):
    """The answers to a query, whose rows are sent in batches that the server accepts.

    Use it as `while call.rows_left: call.add(send(call.request()))`, with errors to `call.reject`.
    """

    def __init__(self, query: Query[R, T], target: Target, batch_size: int) -> None:
        self._query, self._target, self._most = query, target, batch_size
        sizes = [query.size(row) for row in query.rows]
        self._order = sorted(range(len(sizes)), key=sizes.__getitem__)
        self._parts: list[int] = []  # sizes of the parts of a rejected batch; the last comes first
        self._answers: list[T | InvalidRequestError] = []  # in the order of sizes

    @property
    def rows_left(self) -> int:
        """The number of rows without an answer."""
        return len(self._order) - len(self._answers)

    def request(self) -> Message:
        """Return the PredictRequest of the next batch."""
        request = PredictRequest(model_spec=self._target.spec(self._query.signature))
        for name, tensor in self._query.write(self._batch()).items():
            request.inputs[name].CopyFrom(tensor)
        return request

    def add(self, response: Message) -> None:
        """Read the PredictResponse of the next batch."""
        self._answers += self._query.read(response, len(self._batch()))
        del self._parts[-1:]

    def reject(self, error: ServingError) -> None:
        """Make the next batch smaller, or keep the error of its row; raise any other error."""
        count = len(self._batch())
        if isinstance(error, MessageTooLargeError) and count > 1:
            self._most = count // 2
        elif (limit := _batch_limit(error)) and limit < count:
            self._most = limit
        elif not (isinstance(error, InvalidRequestError) and self._query.keeps_errors):
            raise error
        elif count > 1:
            self._parts[-1:] = [count - count // 2, count // 2]
        else:
            self._answers.append(error)
            del self._parts[-1:]

    def answers(self) -> list[Any]:
        """Return the answers in the order of the rows."""
        pairs = zip(self._order, self._answers, strict=True)
        return [answer for _, answer in sorted(pairs, key=itemgetter(0))]

    def _batch(self) -> list[R]:
        """Return the rows of the next batch."""
        size = min([self._most, *self._parts[-1:]])
        if self._parts and size < self._parts[-1]:  # the server's limit fell meanwhile
            self._parts[-1:] = [self._parts[-1] - size, size]
        start = len(self._answers)
        return [self._query.rows[number] for number in self._order[start : start + size]]


def _batch_limit(error: ServingError) -> int:
    """Return the most rows that a server takes, by its error; 0 if the error is another."""
    found = _BATCH_LIMIT.search(str(error)) if isinstance(error, InvalidRequestError) else None
    return int(found[1]) if found else 0


@dataclass(frozen=True)
class Target:
    """A model on a server, with a version or a label; without both, its latest version."""

    address: str
    model: str
    version: int | None = None
    label: str | None = None

    def spec(self, signature: str = "") -> Message:
        """Return the ModelSpec of a request."""
        spec = ModelSpec(name=self.model, signature_name=signature)
        if self.version is not None:
            spec.version.value = self.version
        if self.label is not None:
            spec.version_label = self.label
        return spec


def metadata_request(target: Target) -> Message:
    """Return the GetModelMetadataRequest."""
    return GetModelMetadataRequest(model_spec=target.spec(), metadata_field=["signature_def"])


def read_metadata(response: Message, target: Target) -> Metadata:
    """Return the version and the signatures in a GetModelMetadataResponse."""
    signatures = SignatureDefMap()
    with suppress(DecodeError):
        signatures.ParseFromString(response.metadata["signature_def"].value)
    if not signatures.signature_def:
        raise UnexpectedResponseError(f"the server at {target.address} sent no signatures")
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


def status_request(target: Target) -> Message:
    """Return the GetModelStatusRequest."""
    return GetModelStatusRequest(model_spec=target.spec())


def is_available(response: Message) -> bool:
    """Return whether a GetModelStatusResponse has a version that can be asked."""
    return any(each.state == _AVAILABLE for each in response.model_version_status)


def not_ready(target: Target, seconds: float) -> DeadlineExceededError:
    """Return the error for a model that was not available in time."""
    return DeadlineExceededError(
        f"model {target.model!r} was not available at {target.address} within {seconds:g} s: "
        "wait longer while it loads, or check that it runs, its log and the model's name"
    )


def _tensor_text(info: Message) -> str:
    """Return dtype and shape of a TensorInfo as text: `float(?, 3)`."""
    dims = ", ".join("?" if dim.size < 0 else str(dim.size) for dim in info.tensor_shape.dim)
    name, *_ = protobuf.DTYPES.get(info.dtype, (f"type {info.dtype}",))
    return f"{name}({dims})"
