"""Compares a running server, such as stock TensorFlow Serving, with the C++ session."""

from __future__ import annotations

import itertools
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from serving.api._printing import first_line
from serving.check._answers import different
from serving.check._questions import TEXTS, make_inputs, predicting, questions, takes_texts
from serving.loaded._status import StatusError
from serving.loaded.saved_model import ModelSession
from training.command.progress import ReportStage

_SECONDS = 60.0  # of a request
_NOT_THERE = 999_983  # a version that no server has
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),  # as REST below
]
_DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))

Answer = Mapping[str, np.ndarray] | str  # outputs, or the name of a status
Ask = Callable[[], str]  # returns the difference, or ""


def compare(
    version_dir: Path,
    target: str,
    model: str,
    rest: str = "",
    tell: ReportStage = lambda stage, share=None: None,
) -> tuple[int, list[str]]:
    """Send all requests of the check to a server; compare its answers with the C++ session's.

    Args:
        version_dir: the version of the C++ session.
        target: HOST:PORT of the server's gRPC.
        model: the model's name on the server.
        rest: HOST:PORT of the server's REST, or "".
        tell: reports the progress.

    Returns the number of requests, and a line for each difference.
    """
    with (
        ModelSession(version_dir) as session,
        grpc.insecure_channel(target, options=_OPTIONS) as channel,
    ):
        differences, count = [], 0
        asking = _Asking(session, channel, model, int(version_dir.name), rest)
        for question, ask in asking.questions():
            tell(question)
            count += 1
            try:
                difference = ask()
            except grpc.RpcError as error:
                difference = f"{error.code().name}: {error.details()}"
            except Exception as error:  # the response is malformed
                difference = f"{type(error).__name__}: {first_line(error)}"
            if difference:
                differences.append(f"{question}: {difference}")
            if count == 1 and difference.startswith("UNAVAILABLE"):
                break  # no server is running
        return count, differences


class _Asking:
    """All requests to a server, each with the comparison of its answer."""

    def __init__(
        self, session: ModelSession, channel: grpc.Channel, model: str, version: int, rest: str
    ) -> None:
        self._session, self._model, self._version, self._rest = session, model, version, rest
        self._predict = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        self._models = model_service_pb2_grpc.ModelServiceStub(channel)

    def questions(self) -> Iterator[tuple[str, Ask]]:
        """Yield the description of each request, and the function that sends and compares it."""
        signatures = predicting(self._session.signatures).items()
        inputs: Mapping[str, np.ndarray] = {}
        yield "status", self._status
        yield "metadata", self._metadata
        for name, signature in signatures:
            for what, rows, _ in itertools.chain.from_iterable(questions(signature)):
                inputs = make_inputs(signature, rows)
                yield f"signature {name} on {what}", partial(self._answer, name, inputs)
            yield from self._bad_requests(name, inputs)
        if self._rest:
            yield "REST: status", self._rest_status
            for name, signature in signatures:
                if len(signature.inputs) == 1 and takes_texts(signature):
                    yield f"REST: signature {name}", partial(self._rest_answer, name)

    def _spec(self, **more: Any) -> model_pb2.ModelSpec:
        more = {"version": {"value": self._version}, **more}
        return model_pb2.ModelSpec(name=self._model, **more)

    def _status(self) -> str:
        request = get_model_status_pb2.GetModelStatusRequest(model_spec=self._spec())
        versions = self._models.GetModelStatus(request, timeout=_SECONDS).model_version_status
        states = [(each.version, each.state, each.status.error_code) for each in versions]
        available = get_model_status_pb2.ModelVersionStatus.AVAILABLE
        expected = [(self._version, available, 0)]
        return "" if states == expected else f"{states}; expected {expected}"

    def _metadata(self) -> str:
        request = get_model_metadata_pb2.GetModelMetadataRequest(
            model_spec=self._spec(), metadata_field=["signature_def"]
        )
        answer = self._predict.GetModelMetadata(request, timeout=_SECONDS)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        answer.metadata["signature_def"].Unpack(signatures)
        there, here = dict(signatures.signature_def), self._session.signatures
        names = [name for name in sorted({*there, *here}) if there.get(name) != here.get(name)]
        return f"signatures differ: {', '.join(names)}" if names else ""

    def _answer(
        self, name: str, inputs: Mapping[str, np.ndarray], expected: Answer = "", **spec: Any
    ) -> str:
        """Return the difference between the server's answer and the expected answer, or "".

        `expected` defaults to the session's answer. `spec` has further fields of the ModelSpec.
        """
        if not expected:
            try:
                expected = self._session.run(name, inputs)
            except StatusError as error:
                expected = error.code.name
        return _difference(self._ask(name, inputs, **spec), expected)

    def _ask(self, name: str, inputs: Mapping[str, Any], **spec: Any) -> Answer:
        request = predict_pb2.PredictRequest(model_spec=self._spec(signature_name=name, **spec))
        for alias, array in inputs.items():
            request.inputs[alias].CopyFrom(tf.make_tensor_proto(array))
        try:
            answer = self._predict.Predict(request, timeout=_SECONDS)
        except grpc.RpcError as error:
            return error.code().name
        of = answer.model_spec
        if (of.version.value, of.name) != (self._version, self._model):
            return f"the answer of {of.name}, {of.version.value}"
        return {alias: tf.make_ndarray(proto) for alias, proto in answer.outputs.items()}

    def _bad_requests(
        self, name: str, inputs: Mapping[str, np.ndarray]
    ) -> Iterator[tuple[str, Ask]]:
        """Yield requests that a server must reject, each with a certain status."""
        more = {**inputs, "not_there": np.zeros(1)}
        fewer = dict(list(inputs.items())[1:])
        version: dict[str, Any] = {"version": {"value": _NOT_THERE}}
        for what, signature, given, spec, status in (
            ("an input too many", name, more, {}, "INVALID_ARGUMENT"),
            ("an input too few", name, fewer, {}, "INVALID_ARGUMENT"),
            ("an unknown signature", f"{name}_not_there", inputs, {}, "FAILED_PRECONDITION"),
            ("an unknown version", name, inputs, version, "NOT_FOUND"),
        ):
            ask = partial(self._answer, signature, given, status, **spec)
            yield f"signature {name} with {what}", ask

    def _over_rest(self, path: str, body: bytes | None = None) -> Any:
        where = f"{self._rest}/v1/models/{self._model}/versions/{self._version}"
        try:
            with _DIRECTLY.open(f"http://{where}{path}", body, _SECONDS) as response:
                return json.loads(response.read())
        except urllib.error.HTTPError as error:
            said = error.read().decode("utf-8", "replace").split()
            error.msg = " ".join([f"{error.msg}:", *said])
            raise

    def _rest_status(self) -> str:
        answer = self._over_rest("")
        states = [each.get("state") for each in answer.get("model_version_status", [])]
        return "" if states == ["AVAILABLE"] else f"{states}; expected AVAILABLE"

    def _rest_answer(self, name: str) -> str:
        """Compare the JSON outputs of a signature; a single output comes without its name."""
        (alias,) = self._session.signatures[name].inputs
        texts = [text.decode() for text in TEXTS[:3]]
        body = json.dumps({"signature_name": name, "inputs": texts}).encode()
        answer = self._over_rest(":predict", body)
        arrays = self._session.run(name, {alias: TEXTS[:3]}).items()
        expected = {output: _decoded(array) for output, array in arrays}
        outputs = (
            answer["outputs"] if len(expected) > 1 else dict.fromkeys(expected, answer["outputs"])
        )
        there = {x: np.asarray(outputs[x], array.dtype) for x, array in expected.items()}
        return _difference(there, expected)


def _difference(answer: Answer, expected: Answer) -> str:
    """Return how an answer differs from the expected answer, "" if it does not."""
    if isinstance(answer, str) or isinstance(expected, str):
        names = [x if isinstance(x, str) else "an answer" for x in (answer, expected)]
        return "" if names[0] == names[1] else f"{names[0]}; expected {names[1]}"
    if set(answer) != set(expected):
        return f"outputs {sorted(answer)}; expected {sorted(expected)}"
    alias = different(answer, expected, ties=False)
    return f"output {alias} differs" if alias else ""


def _decoded(array: np.ndarray) -> np.ndarray:
    """Return an array of bytes as texts, any other array as it is."""
    if array.dtype != object:
        return array
    return np.vectorize(lambda text: text.decode("utf-8", "replace"), otypes=[object])(array)
