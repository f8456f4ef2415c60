"""Compares a running server, such as stock TensorFlow Serving, with the C++ session here."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from serving.check.answers import different
from serving.check.process import first_line
from serving.check.questions import IMAGES, PREDICT, images, is_batched, make_inputs, reads_images
from serving.check.texts import HARD_TEXTS, TEXTS
from serving.savedmodel.session import ModelSession
from serving.savedmodel.status import StatusError
from training.command.progress import Tell

_SECONDS = 60.0  # of a request
_TOLERANCE = 1e-4
_NOT_THERE = 999_983  # a version that nobody serves
_MOST_BYTES = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]

Answer = Mapping[str, np.ndarray] | str  # outputs, or the name of a status


class Server(NamedTuple):
    """The server that is asked.

    Attributes:
        target: HOST:PORT of gRPC.
        model: its name there.
        rest: HOST:PORT of REST; "" leaves REST out.
    """

    target: str
    model: str
    rest: str = ""


class Compared(NamedTuple):
    """The number of requests, and a line for each difference."""

    asked: int
    differences: list[str]


def compare(
    version_dir: Path, server: Server, tell: Tell = lambda stage, share=None: None
) -> Compared:
    """Ask a server all questions of the check; compare its answers with the C++ session's."""
    with (
        ModelSession(version_dir) as session,
        grpc.insecure_channel(server.target, options=_MOST_BYTES) as channel,
    ):
        asking = _Asking(session, server, int(version_dir.name), channel)
        differences, asked = [], 0
        for question, ask in asking.questions():
            tell(question)
            asked += 1
            try:
                found = ask()
            except grpc.RpcError as error:
                found = f"{error.code().name}: {error.details()}"
            except (OSError, http.client.HTTPException) as error:
                found = first_line(error)
            if found:
                differences.append(f"{question}: {found}")
            if found.startswith("UNAVAILABLE") and not asking.answered:
                break  # nobody is there
        return Compared(asked, differences)


Ask = Callable[[], str]  # returns the difference, or ""


class _Asking:
    """All questions to a server."""

    def __init__(
        self, session: ModelSession, server: Server, version: int, channel: grpc.Channel
    ) -> None:
        self._session, self._server, self._version = session, server, version
        self._predict = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        self._models = model_service_pb2_grpc.ModelServiceStub(channel)
        self.answered = False

    def questions(self) -> Iterator[tuple[str, Ask]]:
        """Each question in words, and the function that asks it."""
        yield "status", self._status
        yield "metadata", self._metadata
        for name, signature in sorted(self._session.signatures.items()):
            if not name.startswith("__") and signature.method_name == PREDICT:
                for what, inputs in _batches(signature):
                    yield f"signature {name} on {what}", partial(self._answer, name, inputs)
                yield from self._bad_requests(name, signature)
        if self._server.rest:
            yield "REST: status", self._rest_status
            for name, signature in sorted(self._session.signatures.items()):
                if _takes_texts(signature) and signature.method_name == PREDICT:
                    yield f"REST: signature {name}", partial(self._rest_answer, name)

    def _spec(self, **more: Any) -> model_pb2.ModelSpec:
        spec = model_pb2.ModelSpec(name=self._server.model, **more)
        if not more.get("version"):
            spec.version.value = self._version
        return spec

    def _status(self) -> str:
        request = get_model_status_pb2.GetModelStatusRequest(model_spec=self._spec())
        found = self._models.GetModelStatus(request, timeout=_SECONDS).model_version_status
        self.answered = True
        states = [(one.version, one.state, one.status.error_code) for one in found]
        available = get_model_status_pb2.ModelVersionStatus.AVAILABLE
        expected = [(self._version, available, 0)]
        return "" if states == expected else f"{states}; expected {expected}"

    def _metadata(self) -> str:
        request = get_model_metadata_pb2.GetModelMetadataRequest(
            model_spec=self._spec(), metadata_field=["signature_def"]
        )
        answer = self._predict.GetModelMetadata(request, timeout=_SECONDS)
        found = get_model_metadata_pb2.SignatureDefMap()
        answer.metadata["signature_def"].Unpack(found)
        here = self._session.signatures
        if set(found.signature_def) != set(here):
            return f"signatures {sorted(found.signature_def)}; expected {sorted(here)}"
        for name, signature in here.items():
            there = found.signature_def[name]
            for side in ("inputs", "outputs"):
                if _map(getattr(there, side)) != _map(getattr(signature, side)):
                    return f"{side} of signature {name} differ"
        return ""

    def _answer(self, name: str, inputs: Mapping[str, np.ndarray]) -> str:
        """The difference between the server's answer and the session's."""
        protos = {alias: tf.make_tensor_proto(array) for alias, array in inputs.items()}
        expected: Answer
        try:
            expected = self._session.run(self._session.signatures[name], protos)
        except StatusError as error:
            expected = error.code.name
        return _difference(self._ask(name, protos), expected)

    def _ask(self, name: str, inputs: Mapping[str, Any], **spec: Any) -> Answer:
        """The server's answer: outputs, or the name of its status."""
        request = predict_pb2.PredictRequest(model_spec=self._spec(signature_name=name, **spec))
        for alias, proto in inputs.items():
            request.inputs[alias].CopyFrom(proto)
        try:
            answer = self._predict.Predict(request, timeout=_SECONDS)
        except grpc.RpcError as error:
            return error.code().name
        if (answer.model_spec.version.value, answer.model_spec.name) != (
            self._version,
            self._server.model,
        ):
            return f"the answer of {answer.model_spec.name}, {answer.model_spec.version.value}"
        return {alias: tf.make_ndarray(proto) for alias, proto in answer.outputs.items()}

    def _bad_requests(
        self, name: str, signature: meta_graph_pb2.SignatureDef
    ) -> Iterator[tuple[str, Ask]]:
        """Requests that a server refuses, and how."""
        _, inputs = next(iter(_batches(signature)))
        protos = {alias: tf.make_tensor_proto(array) for alias, array in inputs.items()}
        more = {**protos, "not_there": tf.make_tensor_proto(0)}
        missing = dict(list(protos.items())[1:])
        version = {"version": {"value": _NOT_THERE}}
        for what, signature_name, sent, spec, expected in (
            ("an input too many", name, more, {}, "INVALID_ARGUMENT"),
            ("an input too few", name, missing, {}, "INVALID_ARGUMENT"),
            ("an unknown signature", f"{name}_not_there", protos, {}, "FAILED_PRECONDITION"),
            ("an unknown version", name, protos, version, "NOT_FOUND"),
        ):
            if signature.inputs:
                ask = partial(self._refusal, signature_name, sent, spec, expected)
                yield f"signature {name} with {what}", ask

    def _refusal(
        self, name: str, inputs: Mapping[str, Any], spec: Mapping[str, Any], expected: str
    ) -> str:
        return _difference(self._ask(name, inputs, **spec), expected)

    # REST

    def _rest(self, method: str, path: str, body: str | None = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(self._server.rest, timeout=_SECONDS)
        try:
            path = f"/v1/models/{self._server.model}/versions/{self._version}{path}"
            connection.request(method, path, body)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        except ValueError as error:
            raise http.client.HTTPException(f"not JSON: {first_line(error)}") from None
        finally:
            connection.close()

    def _rest_status(self) -> str:
        status, found = self._rest("GET", "")
        states = [one.get("state") for one in found.get("model_version_status", [])]
        return "" if (status, states) == (200, ["AVAILABLE"]) else f"HTTP {status}, {states}"

    def _rest_answer(self, name: str) -> str:
        """Ask with texts as JSON; a row is an object of outputs, or the value of the only one."""
        signature = self._session.signatures[name]
        (alias,) = signature.inputs
        texts = [text.decode() for text in TEXTS[:3]]
        body = json.dumps({"signature_name": name, "instances": texts})
        status, found = self._rest("POST", ":predict", body)
        rows = found.get("predictions")
        if status != 200 or not isinstance(rows, list) or len(rows) != len(texts):
            return f"HTTP {status}, {str(found)[:200]}"
        arrays = self._session.run(
            signature, {alias: tf.make_tensor_proto([text.encode() for text in texts])}
        )
        for number, row in enumerate(rows):
            row = row if len(arrays) > 1 else {next(iter(arrays)): row}
            for output, array in sorted(arrays.items()):
                if not _same_json(row.get(output), array[number]):
                    return f"output {output} of row {number} differs"
        return ""


def _takes_texts(signature: meta_graph_pb2.SignatureDef) -> bool:
    (kind, *more) = [(alias, info.dtype) for alias, info in signature.inputs.items()] or [("", 0)]
    return not more and kind[0] != IMAGES and kind[1] == tf.string.as_datatype_enum


def _batches(
    signature: meta_graph_pb2.SignatureDef,
) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Inputs of one row, of batches, of none, and odd ones, in words."""
    rows, inputs = images() if reads_images(signature) else TEXTS, partial(make_inputs, signature)
    yield "a batch of 1", inputs(rows[:1])
    if not is_batched(signature):
        return
    for size in (3, len(rows)):
        yield f"a batch of {size}", inputs(rows[:size])
    yield "a batch of 0", inputs([])
    for number, row in enumerate(rows[1:], 1):
        yield f"row {number} alone", inputs([row])
    if reads_images(signature):
        yield "a broken image", inputs([b"a text called .png"])
    elif _takes_texts(signature):
        for number, text in enumerate(HARD_TEXTS):
            yield f"odd text {number} alone", inputs([text])
        yield "odd texts together", inputs(HARD_TEXTS)


def _difference(found: Answer, expected: Answer) -> str:
    """How an answer differs from the expected one; "" where it does not."""
    if isinstance(found, str) or isinstance(expected, str):
        return "" if found == expected else f"{_named(found)}; expected {_named(expected)}"
    if set(found) != set(expected):
        return f"outputs {sorted(found)}; expected {sorted(expected)}"
    if alias := different(found, expected):
        return f"output {alias} differs"
    for alias, array in sorted(expected.items()):
        # Of two hypotheses of the same score either may come first: the reader decides.
        if array.dtype.kind not in "fc" and (found[alias] != array).any():
            return f"output {alias} differs, numbers agree"
    return ""


def _named(answer: Answer) -> str:
    return answer if isinstance(answer, str) else "an answer"


def _map(infos: Mapping[str, meta_graph_pb2.TensorInfo]) -> dict[str, tuple]:
    return {
        alias: (info.name, info.dtype, info.tensor_shape.SerializeToString(deterministic=True))
        for alias, info in infos.items()
    }


def _same_json(found: Any, expected: Any) -> bool:
    """Whether a value of JSON is that of an array, bytes as text."""
    expected = np.asarray(expected, object if isinstance(expected, bytes) else None)
    if expected.dtype == object:
        decoded = np.vectorize(lambda text: text.decode("utf-8", "replace"), otypes=[object])
        return bool(found == decoded(expected).tolist()) if expected.size else found == []
    if expected.dtype.kind == "b":
        return bool(found == expected.tolist())
    try:
        numbers = np.asarray(found, float)
    except (TypeError, ValueError):
        return False
    return numbers.shape == expected.shape and np.allclose(
        numbers, expected.astype(float), rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True
    )
