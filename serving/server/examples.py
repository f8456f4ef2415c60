"""Classify, Regress and MultiInference: signatures that take serialized tf.Examples."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
from google.protobuf.message import Message

from serving.client import protobuf
from serving.savedmodel.status import Code, StatusError, invalid
from serving.server.call import Call
from serving.server.predict import DEFAULT_SIGNATURE
from serving.server.servable import Servable
from serving.server.tensors import shape_text

_MOST_CONTEXT_BYTES = 2**27  # of a context and all its copies
_ClassificationResult = protobuf.message("ClassificationResult")
_ClassificationResponse = protobuf.message("ClassificationResponse")
_RegressionResult = protobuf.message("RegressionResult")
_RegressionResponse = protobuf.message("RegressionResponse")
_MultiInferenceResponse = protobuf.message("MultiInferenceResponse")


class _Method(NamedTuple):
    """Classify or Regress.

    Attributes:
        name: the method name of its signatures.
        noun: its name in errors.
        response: the message of an answer.
        check: raises StatusError for a signature with other outputs.
        result: makes the answer's message of outputs and their number of rows.
    """

    name: str
    noun: str
    response: Callable[..., Message]
    check: Callable[[Message], None]
    result: Callable[[Mapping[str, np.ndarray], int], Message]


def _check_classes(signature: Message) -> None:
    count = len(signature.outputs)
    if count not in (1, 2):
        raise invalid(f"Expected one or two output Tensors, found {count}")
    if not {"classes", "scores"} & set(signature.outputs):
        raise StatusError(
            Code.FAILED_PRECONDITION,
            'Expected classification signature outputs to contain at least one of "classes" or '
            f'"scores". Signature was: {signature}',
        )


def _check_numbers(signature: Message) -> None:
    if len(signature.outputs) != 1:
        raise invalid("Expected one output Tensor.")
    if "outputs" not in signature.outputs:
        raise StatusError(
            Code.FAILED_PRECONDITION, f"No regression outputs found in SignatureDef: {signature}"
        )


def _classifications(outputs: Mapping[str, np.ndarray], count: int) -> Message:
    wanted = {"classes": (np.dtype(object), "DT_STRING"), "scores": (np.dtype("f4"), "DT_FLOAT")}
    for alias, (dtype, dtype_name) in wanted.items():
        if alias not in outputs:
            continue
        array = outputs[alias]
        if array.ndim != 2:
            raise invalid(
                f"Expected Tensor shape: [batch_size num_classes] but got {shape_text(array.shape)}"
            )
        if array.dtype != dtype:
            raise invalid(f"Expected {alias} Tensor of {dtype_name}. Got: {array.dtype}")
        if len(array) != count:
            raise invalid(f"Expected {alias} output batch size of {count}. Got: {len(array)}")
    sizes = {alias: array.shape[1] for alias, array in outputs.items()}
    if len(set(sizes.values())) > 1:
        raise invalid(
            f"Tensors class and score should match in dim_size(1). Got {sizes['classes']} vs. "
            f"{sizes['scores']}"
        )
    result = _ClassificationResult()
    for row in range(count):
        found = result.classifications.add()
        for column in range(next(iter(sizes.values()))):
            one = found.classes.add()
            if "classes" in outputs:
                one.label = outputs["classes"][row, column].decode("utf-8", "replace")
            if "scores" in outputs:
                one.score = outputs["scores"][row, column]
    return result


def _regressions(outputs: Mapping[str, np.ndarray], count: int) -> Message:
    array = outputs["outputs"]
    if not (array.ndim == 1 or (array.ndim == 2 and array.shape[1] == 1)):
        raise invalid(
            "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got "
            f"{shape_text(array.shape)}"
        )
    if len(array) != count:
        raise invalid(f"Input batch size did not match output batch size: {count} vs. {len(array)}")
    if array.dtype != np.float32:
        raise invalid(f"Expected output Tensor of DT_FLOAT.  Got: {array.dtype}")
    result = _RegressionResult()
    for value in array.ravel():
        result.regressions.add(value=value)
    return result


_CLASSIFY = _Method(
    *("tensorflow/serving/classify", "classification", _ClassificationResponse),
    *(_check_classes, _classifications),
)
_REGRESS = _Method(
    *("tensorflow/serving/regress", "regression", _RegressionResponse),
    *(_check_numbers, _regressions),
)
_METHODS = {method.name: method for method in (_CLASSIFY, _REGRESS)}


def _check_signature(signature: Message, method: _Method, strict: bool) -> None:
    if strict and signature.method_name != method.name:
        raise invalid(
            f"Expected {method.noun} signature method_name to be {method.name}. Was: "
            f"{signature.method_name}"
        )
    if len(signature.inputs) != 1:
        raise invalid("Expected one input Tensor.")
    if "inputs" not in signature.inputs:
        raise StatusError(
            Code.FAILED_PRECONDITION, f"No {method.noun} inputs found in SignatureDef: {signature}"
        )
    method.check(signature)


def _examples(request: Message, most_rows: int) -> Message:
    """The examples as a tensor of strings. A context is put before each."""
    if request.WhichOneof("kind") == "example_list_with_context":
        # Concatenated messages parse as the merged message.
        context = request.example_list_with_context.context.SerializeToString()
        examples = request.example_list_with_context.examples
    else:
        context, examples = b"", request.example_list.examples
    if not examples:
        raise invalid("Input is empty.")
    if most_rows and len(examples) > most_rows:
        raise invalid(
            f"Task size {len(examples)} is larger than maximum input batch size {most_rows}"
        )
    if len(context) * len(examples) > _MOST_CONTEXT_BYTES:
        raise invalid(
            f"A context of {len(context)} bytes before each of {len(examples)} examples is more "
            f"than {_MOST_CONTEXT_BYTES} bytes"
        )
    return protobuf.string_tensor([context + one.SerializeToString() for one in examples])


def _signature_name(spec: Message) -> str:
    return spec.signature_name or DEFAULT_SIGNATURE


def _run(
    servable: Servable, spec: Message, examples: Message, method: _Method, call: Call, api: str
) -> Message:
    """Run a signature on the examples."""
    name = _signature_name(spec)
    known = ("classes", "scores", "outputs")
    aliases = [alias for alias in servable.signatures[name].outputs if alias in known]
    outputs = servable.run(name, {"inputs": examples}, aliases, call, api)
    return method.result(outputs, len(examples.string_val))


def _fill_spec(spec: Message, asked: Message, servable: Servable) -> None:
    spec.name = asked.name
    spec.signature_name = _signature_name(asked)
    spec.version.value = servable.version


def _answer(
    method: _Method, servable: Servable, request: Message, call: Call, strict: bool = False
) -> Message:
    """Answer a ClassificationRequest or a RegressionRequest. Raises StatusError."""
    name = _signature_name(request.model_spec)
    if name not in servable.signatures:
        raise invalid(f"No signature was found with the name: {name}")
    _check_signature(servable.signatures[name], method, strict)
    examples, api = _examples(request.input, servable.most_rows), method.name.rpartition("/")[2]
    result = _run(servable, request.model_spec, examples, method, call, api.capitalize())
    response = method.response(result=result)
    _fill_spec(response.model_spec, request.model_spec, servable)
    return response


classify, regress = partial(_answer, _CLASSIFY), partial(_answer, _REGRESS)


def multi_inference(
    servable: Servable, request: Message, call: Call, strict: bool = False
) -> Message:
    """Answer a MultiInferenceRequest: several signatures on the same examples.

    Each signature of TensorFlow 2 feeds its own tensor, and its method name has no meaning. If
    method names are checked, as for models of TensorFlow 1, all must feed the same tensor.
    """
    seen: set[str] = set()
    feeds: set[str] = set()
    for task in request.tasks:
        name = _signature_name(task.model_spec)
        if not task.model_spec.name:
            raise invalid("Found ModelSpec with an empty model name.")
        if task.model_spec.name != request.tasks[0].model_spec.name:
            raise invalid(
                "All ModelSpecs in a MultiInferenceRequest must access the same model name."
            )
        if name in seen:
            raise invalid(f"Duplicate evaluation of signature: {name}")
        seen.add(name)
        if name not in servable.signatures:
            raise invalid(f"Requested signature not found in model graph: {name}")
        if task.method_name not in _METHODS:
            raise StatusError(
                Code.UNIMPLEMENTED, f"Unsupported signature method_name: {task.method_name}"
            )
        signature = servable.signatures[name]
        _check_signature(signature, _METHODS[task.method_name], strict)
        feeds.add(signature.inputs["inputs"].name)
    if strict and len(feeds) > 1:
        raise invalid("Input tensor must be the same for all Signatures.")
    examples = _examples(request.input, servable.most_rows)
    response = _MultiInferenceResponse()
    for task in request.tasks:
        method = _METHODS[task.method_name]
        found = _run(servable, task.model_spec, examples, method, call, "MultiInference")
        result = response.results.add()
        getattr(result, f"{method.noun}_result").CopyFrom(found)
        _fill_spec(result.model_spec, task.model_spec, servable)
    return response
