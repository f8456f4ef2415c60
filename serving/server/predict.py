"""Predict and GetModelMetadata on a loaded version."""

from collections.abc import Iterable, Mapping

from google.protobuf.message import Message

from serving.client.protobuf import (
    SIGNATURES,
    GetModelMetadataResponse,
    PredictResponse,
    SignatureDefMap,
)
from serving.savedmodel.status import Code, StatusError, invalid
from serving.server.call import Call
from serving.server.servable import Servable
from serving.server.tensors import to_proto

DEFAULT_SIGNATURE = "serving_default"
_METHODS = {f"tensorflow/serving/{name}" for name in ("predict", "classify", "regress")}


def _names(names: Iterable[str]) -> str:
    return "{" + ",".join(sorted(names)) + "}"


def _inputs(signature: Message, request: Mapping[str, Message]) -> dict[str, Message]:
    """The request's inputs and the signature's defaults, with the stock server's checks."""
    wanted, sent, defaults = set(signature.inputs), set(request), signature.defaults
    if len(sent) > len(wanted) or (len(sent) < len(wanted) and not defaults):
        raise invalid(
            f"input size does not match signature: {len(sent)}!={len(wanted)} "
            f"len({_names(sent)}) != len({_names(wanted)}). Sent extra: {_names(sent - wanted)}. "
            f"Missing but required: {_names(wanted - sent)}.",
        )
    inputs = {}
    for alias, info in signature.inputs.items():
        if alias not in request and alias not in defaults:
            raise invalid(
                f"Signature input alias: {alias}(feed name: {info.name}) not found in request and "
                f"no default value provided. Inputs expected to be in the request {_names(sent)}, "
                f"or default input alias set: {','.join(sorted(defaults))}",
            )
        inputs[alias] = request[alias] if alias in request else defaults[alias]
    if not sent <= wanted:
        raise invalid(
            f"Inputs contains invalid name. Used request inputs: {','.join(sorted(sent & wanted))}"
            f", request input: {','.join(sorted(sent))}",
        )
    return inputs


def _check_outputs(signature: Message, outputs: list[str]) -> None:
    seen = set()
    for alias in outputs:
        if alias not in signature.outputs:
            raise invalid(
                f"output tensor alias not found in signature: {alias} Outputs expected to be in "
                f"the set {_names(signature.outputs)}.",
            )
        if alias in seen:
            raise invalid(f"duplicate output tensor alias: {alias}")
        seen.add(alias)


def predict(servable: Servable, request: Message, call: Call, strict: bool = False) -> Message:
    """Answer a PredictRequest with a PredictResponse. Raises StatusError.

    Args:
        servable: the model version.
        request: the PredictRequest.
        call: its deadline.
        strict: refuse a signature with a method name unknown to TensorFlow Serving.
    """
    name = request.model_spec.signature_name or DEFAULT_SIGNATURE
    # A lookup would add a missing key to the message's map.
    if name not in servable.signatures:
        raise StatusError(Code.FAILED_PRECONDITION, f'Serving signature key "{name}" not found.')
    signature = servable.signatures[name]
    if strict and signature.method_name not in _METHODS:
        raise StatusError(
            Code.INTERNAL,
            "Expected prediction signature method_name to be one of {tensorflow/serving/predict, "
            "tensorflow/serving/classify, tensorflow/serving/regress}. Was: "
            f"{signature.method_name}",
        )
    inputs = _inputs(signature, request.inputs)
    outputs = list(request.output_filter)
    _check_outputs(signature, outputs)
    response = PredictResponse()
    for alias, array in servable.run(name, inputs, outputs, call).items():
        response.outputs[alias].CopyFrom(to_proto(array))
    response.model_spec.name = request.model_spec.name
    response.model_spec.signature_name = name
    response.model_spec.version.value = servable.version
    return response


def metadata(servable: Servable) -> Message:
    """The signatures of a model version."""
    signatures = SignatureDefMap()
    for name, signature in servable.signatures.items():
        signatures.signature_def[name].CopyFrom(signature)
    response = GetModelMetadataResponse()
    response.model_spec.name = servable.name
    response.model_spec.version.value = servable.version
    response.metadata["signature_def"].type_url = SIGNATURES
    response.metadata["signature_def"].value = signatures.SerializeToString()
    return response
