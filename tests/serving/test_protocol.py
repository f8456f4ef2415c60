"""The gRPC protocol, asked with the official stubs over the wire."""

import grpc
import pytest
import tensorflow as tf
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, predict_pb2

from tests.serving.conftest import arrays, error_of

Code = grpc.StatusCode


def request(model="half", signature="", version=None, label=None, output_filter=(), **inputs):
    made = predict_pb2.PredictRequest(output_filter=output_filter)
    made.model_spec.name = model
    made.model_spec.signature_name = signature
    if version is not None:
        made.model_spec.version.value = version
    if label is not None:
        made.model_spec.version_label = label
    for alias, value in inputs.items():
        made.inputs[alias].CopyFrom(tf.make_tensor_proto(value))
    return made


def test_predict_answers_with_values_and_the_version(client):
    response = client.prediction.Predict(request(x=[[1.0], [6.0]]))
    assert arrays(response)["y"].tolist() == [[2.5], [5.0]]
    assert response.outputs["y"].float_val == [2.5, 5.0]
    assert response.model_spec.name == "half"
    assert response.model_spec.version.value == 3
    assert response.model_spec.signature_name == "serving_default"


def test_the_output_filter_selects(client):
    made = request("upper", "nbest", text=["One"], output_filter=["scores"])
    assert list(client.prediction.Predict(made).outputs) == ["scores"]


def metadata_request(name, field="signature_def"):
    made = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=[field])
    if name:
        made.model_spec.name = name
    return made


def status_request(name="half", version=None, label=None):
    made = get_model_status_pb2.GetModelStatusRequest()
    made.model_spec.CopyFrom(request(name, version=version, label=label).model_spec)
    return made


INVALID = Code.INVALID_ARGUMENT
FIELD = "metadata_field expected signature_def. Received: ['x']"
BAD = [
    (request("m"), Code.NOT_FOUND, "Servable not found for request: Latest(m)"),
    (request(version=7), Code.NOT_FOUND, "Servable not found for request: Specific(half, 7)"),
    (request(""), INVALID, "ModelSpec has no name specified."),
    (request(label="x"), INVALID, "Unrecognized servable version label: x"),
    (request(signature="x"), Code.FAILED_PRECONDITION, 'Serving signature key "x" not found.'),
    (request(x=[[1.0]], z=[1.0]), INVALID, "expected the inputs ['x']. Received: ['x', 'z']"),
    (request(), INVALID, "expected the inputs ['x']. Received: []"),
    (
        *(request(x=[[1.0]], output_filter=["y", "y"]), INVALID),
        "expected some of the outputs ['y'], each once. Received: ['y', 'y']",
    ),
    (request("upper", text=[1.0]), INVALID, "Expects arg[0] to be string but float is provided"),
    (metadata_request(None), INVALID, "Missing ModelSpec"),
    (metadata_request("half", "x"), INVALID, FIELD),
    (metadata_request("m"), Code.NOT_FOUND, "Servable not found for request: Latest(m)"),
    (status_request("m"), Code.NOT_FOUND, "Could not find any versions of model m"),
    (status_request(version=7), Code.NOT_FOUND, "Could not find version 7 of model half"),
    (status_request(label="x"), INVALID, "Unrecognized servable version label: x"),
    (get_model_status_pb2.GetModelStatusRequest(), INVALID, "Missing ModelSpec"),
]


@pytest.mark.parametrize(("made", "code", "message"), BAD)
def test_a_bad_request_has_the_stock_servers_status_and_one_line(client, made, code, message):
    method = made.DESCRIPTOR.name.removesuffix("Request")
    service = client.model if method == "GetModelStatus" else client.prediction
    assert error_of(getattr(service, method), made) == (code, message)


def test_long_messages_are_cut(client):
    _, message = error_of(client.prediction.Predict, request("m" * 2000))
    assert message == ("Servable not found for request: Latest(" + "m" * 2000)[:1024] + (
        "...TRUNCATED"
    )


def test_a_passed_deadline_is_exceeded_and_the_next_request_is_served(client):
    made = request("upper", text=["one"] * 200_000)
    code, _ = error_of(client.prediction.Predict, made, timeout=0.05)
    assert code == Code.DEADLINE_EXCEEDED
    assert client.prediction.Predict(request("upper", text=["one"])).model_spec.version.value == 1


def test_metadata_holds_the_signatures(client):
    response = client.prediction.GetModelMetadata(metadata_request("half"))
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(signatures)
    assert signatures.signature_def["serving_default"].inputs["x"].name == "x:0"
    assert response.model_spec.version.value == 3


@pytest.mark.parametrize("which", [{}, {"version": 3}])
def test_the_status_of_a_version(client, which):
    (status,) = client.model.GetModelStatus(status_request(**which)).model_version_status
    assert (status.version, status.state, status.status.error_code) == (3, 30, 0)
