"""Classify, Regress and MultiInference, asked with the official stubs over the wire."""

from types import SimpleNamespace

import grpc
import pytest
import tensorflow as tf
from tensorflow.core.example import example_pb2
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import classification_pb2, inference_pb2, input_pb2, regression_pb2

from serving.savedmodel.status import StatusError
from serving.server.call import Call
from serving.server.examples import multi_inference
from tests.serving.conftest import CLASSIFY, REGRESS, error_of, serving

Code = grpc.StatusCode


def examples(*values):
    found = input_pb2.Input()
    for value in values:
        example = found.example_list.examples.add()
        example.features.feature["x"].float_list.value.append(value)
    return found


def classification(signature="classify", values=(1.0, 6.0)):
    made = classification_pb2.ClassificationRequest(input=examples(*values))
    made.model_spec.name, made.model_spec.signature_name = "half", signature
    return made


def regression(signature="regress", values=(1.0, 6.0)):
    made = regression_pb2.RegressionRequest(input=examples(*values))
    made.model_spec.name, made.model_spec.signature_name = "half", signature
    return made


def test_classify_gives_each_example_its_classes(client):
    response = client.prediction.Classify(classification())
    found = [[(c.label, c.score) for c in row.classes] for row in response.result.classifications]
    assert found == [[("low", 2.5)], [("high", 5.0)]]
    assert response.model_spec.signature_name == "classify"
    response = client.prediction.Classify(classification("scores"))
    assert response.result.classifications[1].classes[0].label == ""


def test_regress_gives_each_example_a_value(client):
    response = client.prediction.Regress(regression())
    assert [one.value for one in response.result.regressions] == [2.5, 5.0]
    assert response.model_spec.version.value == 3


def test_a_context_is_put_before_each_example(client):
    made = regression()
    shared = made.input.example_list_with_context
    shared.context.features.feature["x"].float_list.value.append(8.0)
    shared.examples.add()
    shared.examples.add()
    response = client.prediction.Regress(made)
    assert [one.value for one in response.result.regressions] == [6.0, 6.0]


@pytest.mark.parametrize(
    ("made", "code", "message"),
    [
        (
            classification("x"),
            Code.INVALID_ARGUMENT,
            "No signature was found with the name: x",
        ),
        (classification(values=()), Code.INVALID_ARGUMENT, "Input is empty."),
        (regression("x"), Code.INVALID_ARGUMENT, "No signature was found with the name: x"),
        (regression("classify"), Code.INVALID_ARGUMENT, "Expected one output Tensor."),
    ],
)
def test_bad_classify_and_regress_requests(client, made, code, message):
    call = (
        client.prediction.Classify
        if isinstance(made, classification_pb2.ClassificationRequest)
        else client.prediction.Regress
    )
    assert error_of(call, made) == (code, message)


def multi(*tasks, values=(1.0, 6.0)):
    made = inference_pb2.MultiInferenceRequest(input=examples(*values))
    for method, signature, name in tasks:
        task = made.tasks.add(method_name=method)
        task.model_spec.name, task.model_spec.signature_name = name, signature
    return made


def test_multi_inference_answers_each_task(client):
    response = client.prediction.MultiInference(
        multi((CLASSIFY, "classify", "half"), (REGRESS, "regress2", "half"))
    )
    first, second = response.results
    assert first.classification_result.classifications[1].classes[0].label == "high"
    assert [one.value for one in second.regression_result.regressions] == [3.5, 6.0]
    assert second.model_spec.signature_name == "regress2"
    assert second.model_spec.version.value == 3


@pytest.mark.parametrize(
    ("made", "code", "message"),
    [
        (multi(), Code.INVALID_ARGUMENT, "Inference request contains no tasks."),
        (
            multi((REGRESS, "regress", "half"), (REGRESS, "regress", "upper")),
            Code.INVALID_ARGUMENT,
            "All ModelSpecs in a MultiInferenceRequest must access the same model name.",
        ),
        (
            multi((REGRESS, "regress", "half"), (REGRESS, "regress", "half")),
            Code.INVALID_ARGUMENT,
            "Duplicate evaluation of signature: regress",
        ),
        (
            multi((REGRESS, "x", "half")),
            Code.INVALID_ARGUMENT,
            "Requested signature not found in model graph: x",
        ),
        (
            multi(("x", "regress", "half")),
            Code.UNIMPLEMENTED,
            "Unsupported signature method_name: x",
        ),
        (
            multi((REGRESS, "regress", "half"), values=()),
            Code.INVALID_ARGUMENT,
            "Input is empty.",
        ),
    ],
)
def test_bad_multi_inference_requests(client, made, code, message):
    assert error_of(client.prediction.MultiInference, made) == (code, message)


def test_an_example_is_what_it_says(client):
    example = example_pb2.Example()
    made = regression(values=())
    made.input.example_list.examples.append(example)
    code, message = error_of(client.prediction.Regress, made)
    assert code == Code.INVALID_ARGUMENT
    assert "x" in message


# Signatures of another method


class Examples(tf.Module):
    """TensorFlow 2 saves every signature as one of Predict."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="inputs")])
    def scores(self, inputs):
        parsed = tf.io.parse_example(inputs, {"x": tf.io.FixedLenFeature([1], tf.float32)})
        return {"scores": parsed["x"] / 2 + 2}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="inputs")])
    def outputs(self, inputs):
        return {"outputs": self.scores(inputs)["scores"] + 1}


@pytest.fixture(scope="module")
def tf2(tmp_path_factory):
    base = tmp_path_factory.mktemp("tf2")
    module = Examples()
    signatures = {"scores": module.scores, "outputs": module.outputs}
    tf.saved_model.save(module, str(base / "1"), signatures=signatures)
    return base


@pytest.mark.parametrize("checked", [False, True])
def test_a_predict_signature_answers_unless_method_names_are_checked(tf2, stubs, checked):
    flag = f"--enable_signature_method_name_check={str(checked).lower()}"
    with serving("--model_name=half", f"--model_base_path={tf2}", flag) as server:
        asked = stubs(f"localhost:{server.port}").prediction
        calls = [
            (
                asked.Classify,
                classification("scores", values=(2.0, 4.0)),
                "classification",
                CLASSIFY,
            ),
            (asked.Regress, regression("outputs", values=(2.0, 4.0)), "regression", REGRESS),
        ]
        both = multi((CLASSIFY, "scores", "half"), values=(2.0, 4.0))
        if checked:
            for call, made, kind, method in calls:
                assert error_of(call, made) == (
                    Code.INVALID_ARGUMENT,
                    f"Expected {kind} signature method_name to be {method}. "
                    "Was: tensorflow/serving/predict",
                )
            assert error_of(asked.MultiInference, both)[0] == Code.INVALID_ARGUMENT
            return
        found = [one.classes[0].score for one in calls[0][0](calls[0][1]).result.classifications]
        assert found == [3.0, 4.0]
        found = [one.value for one in calls[1][0](calls[1][1]).result.regressions]
        assert found == [4.0, 5.0]
        both.tasks.extend(multi((REGRESS, "outputs", "half")).tasks)
        scores, outputs = asked.MultiInference(both).results
        found = [one.classes[0].score for one in scores.classification_result.classifications]
        assert found == [3.0, 4.0]
        assert [one.value for one in outputs.regression_result.regressions] == [4.0, 5.0]
        # An output that is missing is missing, whatever the method.
        code, message = error_of(asked.Classify, classification("outputs"))
        assert code == Code.FAILED_PRECONDITION
        assert "to contain at least one of" in message


def test_signatures_whose_names_are_checked_must_feed_the_same_tensor():
    def signature(tensor, method, output):
        made = meta_graph_pb2.SignatureDef(method_name=method)
        made.inputs["inputs"].name = tensor
        made.outputs[output].name = "y:0"
        return made

    servable = SimpleNamespace(
        signatures={
            "a": signature("a:0", CLASSIFY, "scores"),
            "b": signature("b:0", REGRESS, "outputs"),
        }
    )
    made = multi((CLASSIFY, "a", "m"), (REGRESS, "b", "m"))
    with pytest.raises(StatusError, match="Input tensor must be the same for all Signatures"):
        multi_inference(servable, made, Call(), strict=True)
