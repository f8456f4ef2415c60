"""Classify, Regress and MultiInference: signatures that take serialized tf.Examples."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import (
    classification_pb2,
    inference_pb2,
    input_pb2,
    model_pb2,
    regression_pb2,
)

from serving.savedmodel.status import Code, StatusError
from serving.server.call import Call
from serving.server.predict import DEFAULT_SIGNATURE
from serving.server.servable import Servable

CLASSIFY = "tensorflow/serving/classify"
REGRESS = "tensorflow/serving/regress"
_MOST_CONTEXT_BYTES = 2**27  # of a context and all its copies
_KIND = {CLASSIFY: "classification", REGRESS: "regression"}


def _invalid(message: str) -> StatusError:
    return StatusError(Code.INVALID_ARGUMENT, message)


def _signature_name(spec: model_pb2.ModelSpec) -> str:
    return spec.signature_name or DEFAULT_SIGNATURE


def _examples(request: input_pb2.Input, most_rows: int) -> tensor_pb2.TensorProto:
    """The examples, each behind the context where there is one, as a tensor of strings."""
    if request.WhichOneof("kind") == "example_list_with_context":
        # Two serialized messages after one another read as the two merged.
        context = request.example_list_with_context.context.SerializeToString()
        examples = request.example_list_with_context.examples
    else:
        context, examples = b"", request.example_list.examples
    if not examples:
        raise _invalid("Input is empty.")
    if most_rows and len(examples) > most_rows:
        raise _invalid(
            f"Task size {len(examples)} is larger than maximum input batch size {most_rows}"
        )
    if len(context) * len(examples) > _MOST_CONTEXT_BYTES:
        raise _invalid(
            f"A context of {len(context)} bytes before each of {len(examples)} examples is more "
            f"than {_MOST_CONTEXT_BYTES} bytes"
        )
    return tf.make_tensor_proto([context + example.SerializeToString() for example in examples])


def _check_signature(
    signature: meta_graph_pb2.SignatureDef, method: str, check_method_name: bool
) -> None:
    kind = _KIND[method]
    if check_method_name and signature.method_name != method:
        raise _invalid(
            f"Expected {kind} signature method_name to be {method}. Was: {signature.method_name}"
        )
    if len(signature.inputs) != 1:
        raise _invalid("Expected one input Tensor.")
    count = len(signature.outputs)
    if method == CLASSIFY and count not in (1, 2):
        raise _invalid(f"Expected one or two output Tensors, found {count}")
    if method == REGRESS and count != 1:
        raise _invalid("Expected one output Tensor.")
    if "inputs" not in signature.inputs:
        raise StatusError(
            Code.FAILED_PRECONDITION, f"No {kind} inputs found in SignatureDef: {signature}"
        )
    if method == CLASSIFY and not {"classes", "scores"} & set(signature.outputs):
        raise StatusError(
            Code.FAILED_PRECONDITION,
            'Expected classification signature outputs to contain at least one of "classes" or '
            f'"scores". Signature was: {signature}',
        )
    if method == REGRESS and "outputs" not in signature.outputs:
        raise StatusError(
            Code.FAILED_PRECONDITION, f"No regression outputs found in SignatureDef: {signature}"
        )


def _run(
    servable: Servable, name: str, examples: tensor_pb2.TensorProto, call: Call, api: str
) -> dict[str, np.ndarray]:
    aliases = [
        alias
        for alias in servable.session.signatures[name].outputs
        if alias in ("classes", "scores", "outputs")
    ]
    return servable.run(name, {"inputs": examples}, aliases, call, api)


def _shape(array: np.ndarray) -> str:
    return "[" + ",".join(str(size) for size in array.shape) + "]"


def _classifications(
    outputs: Mapping[str, np.ndarray], count: int
) -> classification_pb2.ClassificationResult:
    wanted = {"classes": (np.dtype(object), "DT_STRING"), "scores": (np.dtype("f4"), "DT_FLOAT")}
    for alias, (dtype, dtype_name) in wanted.items():
        if alias not in outputs:
            continue
        array = outputs[alias]
        if array.ndim != 2:
            raise _invalid(
                f"Expected Tensor shape: [batch_size num_classes] but got {_shape(array)}"
            )
        if array.dtype != dtype:
            raise _invalid(f"Expected {alias} Tensor of {dtype_name}. Got: {array.dtype}")
        if len(array) != count:
            raise _invalid(f"Expected {alias} output batch size of {count}. Got: {len(array)}")
    sizes = {alias: array.shape[1] for alias, array in outputs.items()}
    if len(set(sizes.values())) > 1:
        raise _invalid(
            f"Tensors class and score should match in dim_size(1). Got {sizes['classes']} vs. "
            f"{sizes['scores']}"
        )
    result = classification_pb2.ClassificationResult()
    for row in range(count):
        found = result.classifications.add()
        for column in range(next(iter(sizes.values()))):
            one = found.classes.add()
            if "classes" in outputs:
                one.label = outputs["classes"][row, column].decode("utf-8", "replace")
            if "scores" in outputs:
                one.score = outputs["scores"][row, column]
    return result


def _regressions(outputs: Mapping[str, np.ndarray], count: int) -> regression_pb2.RegressionResult:
    array = outputs["outputs"]
    if not (array.ndim == 1 or (array.ndim == 2 and array.shape[1] == 1)):
        raise _invalid(
            "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got "
            f"{_shape(array)}"
        )
    if len(array) != count:
        raise _invalid(
            f"Input batch size did not match output batch size: {count} vs. {len(array)}"
        )
    if array.dtype != np.float32:
        raise _invalid(f"Expected output Tensor of DT_FLOAT.  Got: {array.dtype}")
    result = regression_pb2.RegressionResult()
    for value in array.ravel():
        result.regressions.add(value=value)
    return result


def _named_signature(servable: Servable, name: str, method: str, check_method_name: bool) -> None:
    if name not in servable.session.signatures:
        raise _invalid(f"No signature was found with the name: {name}")
    _check_signature(servable.session.signatures[name], method, check_method_name)


def _fill_spec(spec: model_pb2.ModelSpec, request: model_pb2.ModelSpec, servable: Servable) -> None:
    spec.name = request.name
    spec.signature_name = _signature_name(request)
    spec.version.value = servable.version


def classify(
    servable: Servable,
    request: classification_pb2.ClassificationRequest,
    call: Call,
    check_method_name: bool = False,
) -> classification_pb2.ClassificationResponse:
    """Answer a ClassificationRequest. Raises StatusError."""
    name = _signature_name(request.model_spec)
    _named_signature(servable, name, CLASSIFY, check_method_name)
    examples = _examples(request.input, servable.most_rows)
    outputs = _run(servable, name, examples, call, "Classify")
    response = classification_pb2.ClassificationResponse(
        result=_classifications(outputs, len(examples.string_val))
    )
    _fill_spec(response.model_spec, request.model_spec, servable)
    return response


def regress(
    servable: Servable,
    request: regression_pb2.RegressionRequest,
    call: Call,
    check_method_name: bool = False,
) -> regression_pb2.RegressionResponse:
    """Answer a RegressionRequest. Raises StatusError."""
    name = _signature_name(request.model_spec)
    _named_signature(servable, name, REGRESS, check_method_name)
    examples = _examples(request.input, servable.most_rows)
    outputs = _run(servable, name, examples, call, "Regress")
    response = regression_pb2.RegressionResponse(
        result=_regressions(outputs, len(examples.string_val))
    )
    _fill_spec(response.model_spec, request.model_spec, servable)
    return response


def multi_inference(
    servable: Servable,
    request: inference_pb2.MultiInferenceRequest,
    call: Call,
    check_method_name: bool = False,
) -> inference_pb2.MultiInferenceResponse:
    """Answer a MultiInferenceRequest: several signatures on the same examples.

    Each signature of TensorFlow 2 feeds a tensor of its own, and its method name says nothing.
    Where names are checked, as for models of TensorFlow 1, all must feed the same tensor.
    """
    signatures = servable.session.signatures
    seen: set[str] = set()
    feeds: set[str] = set()
    for task in request.tasks:
        name = _signature_name(task.model_spec)
        if not task.model_spec.name:
            raise _invalid("Found ModelSpec with an empty model name.")
        if task.model_spec.name != request.tasks[0].model_spec.name:
            raise _invalid(
                "All ModelSpecs in a MultiInferenceRequest must access the same model name."
            )
        if name in seen:
            raise _invalid(f"Duplicate evaluation of signature: {name}")
        seen.add(name)
        if name not in signatures:
            raise _invalid(f"Requested signature not found in model graph: {name}")
        if task.method_name not in _KIND:
            raise StatusError(
                Code.UNIMPLEMENTED, f"Unsupported signature method_name: {task.method_name}"
            )
        _check_signature(signatures[name], task.method_name, check_method_name)
        feeds.add(signatures[name].inputs["inputs"].name)
    if check_method_name and len(feeds) > 1:
        raise _invalid("Input tensor must be the same for all Signatures.")
    examples = _examples(request.input, servable.most_rows)
    count = len(examples.string_val)
    response = inference_pb2.MultiInferenceResponse()
    for task in request.tasks:
        name = _signature_name(task.model_spec)
        outputs = _run(servable, name, examples, call, "MultiInference")
        result = response.results.add()
        if task.method_name == CLASSIFY:
            result.classification_result.CopyFrom(_classifications(outputs, count))
        else:
            result.regression_result.CopyFrom(_regressions(outputs, count))
        _fill_spec(result.model_spec, task.model_spec, servable)
    return response
