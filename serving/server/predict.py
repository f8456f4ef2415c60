"""A loaded version of a model: it is tried before it serves, and answers Predict requests."""

import base64
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from google.protobuf.message import Message

from serving.client.protobuf import SIGNATURES
from serving.client.serving_pb2 import GetModelMetadataResponse, PredictResponse, SignatureDefMap
from serving.savedmodel.status import Code, StatusError, invalid
from serving.server.batching import Arrays, Batcher
from serving.server.calls import Call, Metrics
from serving.server.tensors import DTYPES, check_inputs, to_array, to_proto
from serving.server.versions import is_onnx

if TYPE_CHECKING:
    from serving.savedmodel.model import SavedModel
    from serving.server.onnx_model import OnnxModel

    LoadedModel: TypeAlias = SavedModel | OnnxModel

DEFAULT_SIGNATURE = "serving_default"
_TEXT = b"A text to try the model with."
# A PNG of 96 by 48 pixels, half white and half black.
_IMAGE = base64.b64decode(
    b"iVBORw0KGgoAAAANSUhEUgAAAGAAAAAwCAAAAADLfSATAAAALElEQVR42u3NMQ0AAAwDoPo3vWno2QQMkCul"
    b"JRAIBAKBQCAQCAQCgUAgWAoeNe73eXJFIS8AAAAASUVORK5CYII="
)


def load(path: Path, inter_op: int, intra_op: int, seconds: float) -> "LoadedModel":
    """Load a version and run each of its signatures once. Raises StatusError.

    An ONNX export must answer. A SavedModel may refuse what it is tried with, since it may be any.

    Args:
        path: of the version.
        inter_op, intra_op: threads of TensorFlow; `intra_op` of onnxruntime.
        seconds: that a run may take.
    """
    refusals: tuple[Code, ...] = ()
    model: LoadedModel
    if is_onnx(path):
        from serving.server.onnx_model import OnnxModel

        model = OnnxModel(path, max(1, intra_op))
    else:
        import training.command.startup  # noqa: F401

        from serving.savedmodel.model import SavedModel

        model = SavedModel(path, inter_op, intra_op)
        refusals = (Code.INVALID_ARGUMENT, Code.OUT_OF_RANGE)
    for name, signature in model.signatures.items():
        inputs = {alias: _sample(alias, info) for alias, info in signature.inputs.items()}
        try:
            if inputs:
                model.run(name, inputs, (), seconds)
        except StatusError as error:
            if error.code not in refusals:
                model.close()
                raise StatusError(error.code, f"signature {name}: {error.message}") from error
    return model


def _sample(alias: str, info: Message) -> Message:
    """One row for an input: a text, an image or zeros."""
    sizes = [dim.size if dim.size > 0 else 1 for dim in info.tensor_shape.dim]
    values = np.zeros(sizes, DTYPES[info.dtype].numpy if info.dtype in DTYPES else "float32")
    if values.dtype == object:
        values[...] = _IMAGE if alias == "image_bytes" else _TEXT
    return to_proto(values)


class Servable:
    """A version that answers requests.

    Args:
        name, version: of the model.
        model: the loaded model.
        metrics: records run times.
        batcher: runs requests together; without it each runs alone.
        most_rows: of a request.
    """

    def __init__(
        self,
        name: str,
        version: int,
        model: "LoadedModel",
        metrics: Metrics,
        batcher: Batcher | None,
        most_rows: int,
    ):
        self.name = name
        self.version = version
        self.model = model
        self._metrics = metrics
        self._batcher = batcher
        self._most_rows = most_rows

    def signature(self, name: str) -> Message:
        """A signature of the model. Raises StatusError FAILED_PRECONDITION."""
        # A lookup would add a missing key to the message's map.
        if name not in self.model.signatures:
            raise StatusError(
                Code.FAILED_PRECONDITION, f'Serving signature key "{name}" not found.'
            )
        return self.model.signatures[name]

    def predict(self, request: Message, call: Call) -> Message:
        """Answer a PredictRequest with a PredictResponse. Raises StatusError."""
        name = request.model_spec.signature_name or DEFAULT_SIGNATURE
        _check_names(self.signature(name), request)
        response = PredictResponse()
        for alias, array in self._run(name, request, call).items():
            response.outputs[alias].CopyFrom(to_proto(array))
        response.model_spec.name = self.name
        response.model_spec.signature_name = name
        response.model_spec.version.value = self.version
        return response

    def _run(self, name: str, request: Message, call: Call) -> Arrays:
        signature, ranks = self.model.signatures[name], self.model.ranks[name]
        inputs = {alias: request.inputs[alias] for alias in signature.inputs}
        outputs = list(request.output_filter)
        check_inputs(inputs, signature.inputs, ranks, self._most_rows)
        call.check()
        started = time.perf_counter()
        if self._batcher:
            arrays = {alias: to_array(proto) for alias, proto in inputs.items()}
            run = partial(self._run_batch, name)
            batch = self._batcher.run((id(self), name), run, arrays, call)
            answer = {alias: batch[alias] for alias in outputs or batch}
        else:
            answer = self.model.run(name, inputs, outputs, call.seconds_left)
        micros = (time.perf_counter() - started) * 1e6
        self._metrics.runtime.labels(self.name, "Predict").observe(micros)
        return answer

    def _run_batch(self, name: str, inputs: Arrays, seconds: float) -> Arrays:
        protos = {alias: to_proto(array) for alias, array in inputs.items()}
        return self.model.run(name, protos, (), seconds)

    def metadata(self) -> Message:
        """The GetModelMetadataResponse with the signatures."""
        signatures = SignatureDefMap()
        for name, signature in self.model.signatures.items():
            signatures.signature_def[name].CopyFrom(signature)
        response = GetModelMetadataResponse()
        response.model_spec.name = self.name
        response.model_spec.version.value = self.version
        response.metadata["signature_def"].type_url = SIGNATURES
        response.metadata["signature_def"].value = signatures.SerializeToString()
        return response


def _check_names(signature: Message, request: Message) -> None:
    """Compare the names of inputs and outputs with the signature, in the stock server's words."""
    wanted, sent = set(signature.inputs), set(request.inputs)
    if sent != wanted:
        raise invalid(
            f"input size does not match signature: {len(sent)}!={len(wanted)} "
            f"len({_names(sent)}) != len({_names(wanted)}). Sent extra: {_names(sent - wanted)}. "
            f"Missing but required: {_names(wanted - sent)}."
        )
    outputs = list(request.output_filter)
    for number, alias in enumerate(outputs):
        if alias not in signature.outputs:
            raise invalid(
                f"output tensor alias not found in signature: {alias} Outputs expected to be in "
                f"the set {_names(signature.outputs)}."
            )
        if alias in outputs[:number]:
            raise invalid(f"duplicate output tensor alias: {alias}")


def _names(names: Iterable[str]) -> str:
    return "{" + ",".join(sorted(names)) + "}"
