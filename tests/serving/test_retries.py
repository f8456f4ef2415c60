"""The client's retries, and how it cuts batches, against a server that fails on order."""

import asyncio
import concurrent.futures
import threading
import time

import grpc
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from serving.client import (
    AsyncTranslator,
    DeadlineExceededError,
    ServerUnavailableError,
    ServingError,
    Translator,
    UnexpectedResponseError,
)


class FakeServer(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Answers Predict like the translator after `failures`, which are (status, details)."""

    def __init__(self, failures=(), most=None):
        self.failures, self.most, self.batches = list(failures), most, []
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(self, self._server)
        self.target = f"localhost:{self._server.add_insecure_port('localhost:0')}"
        self._server.start()

    def Predict(self, request, context):
        texts = list(request.inputs["text"].string_val)
        self.batches.append(len(texts))
        if self.failures:
            context.abort(*self.failures.pop(0))
        if self.most and len(texts) > self.most[0]:
            context.abort(self.most[1], self.most[2].format(len(texts), self.most[0]))
        response = predict_pb2.PredictResponse()
        for name, values in (
            ("translation", [text.upper() for text in texts]),
            ("score", [1.0] * len(texts)),
            ("truncated", [False] * len(texts)),
        ):
            response.outputs[name].CopyFrom(tf.make_tensor_proto(values))
        return response

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.stop(None)


def ask_async(target, texts, **options):
    async def ask():
        async with AsyncTranslator(target, "upper", **options) as translator:
            return await translator.translate(texts)

    return asyncio.run(ask())


def ask_blocking(target, texts, **options):
    with Translator(target, "upper", **options) as translator:
        return translator.translate(texts)


Status = grpc.StatusCode
UNAVAILABLE = (Status.UNAVAILABLE, "busy")


@pytest.mark.parametrize("ask", [ask_blocking, ask_async])
@pytest.mark.parametrize("failure", [UNAVAILABLE, (Status.CANCELLED, "CANCELLED")])
def test_what_the_server_did_not_take_is_tried_again(ask, failure):
    with FakeServer([failure, failure]) as server:
        assert ask(server.target, ["a"])[0].text == "A"
    assert server.batches == [1, 1, 1]


def test_a_client_that_is_closed_during_a_call_does_not_try_again():
    class Closing(FakeServer):
        def Predict(self, request, context):
            self.batches.append(1)
            threading.Thread(target=translator.close).start()
            time.sleep(1)

    with Closing() as server:
        translator = Translator(server.target, "upper")
        with pytest.raises(ServingError, match="CANCELLED"):
            translator.translate(["a"])
    assert server.batches == [1]


@pytest.mark.parametrize("ask", [ask_blocking, ask_async])
def test_retries_end(ask):
    with FakeServer([UNAVAILABLE] * 9) as server, pytest.raises(ServerUnavailableError):
        ask(server.target, ["a"], retries=2)
    assert server.batches == [1, 1, 1]


@pytest.mark.parametrize("ask", [ask_blocking, ask_async])
def test_retries_end_at_the_deadline(ask):
    with FakeServer([UNAVAILABLE] * 99) as server, pytest.raises(DeadlineExceededError):
        ask(server.target, ["a"], timeout=0.3)
    assert 2 <= len(server.batches) < 5


@pytest.mark.parametrize("ask", [ask_blocking, ask_async])
@pytest.mark.parametrize(
    "status",
    [Status.INVALID_ARGUMENT, Status.INTERNAL, Status.NOT_FOUND, Status.DEADLINE_EXCEEDED],
)
def test_other_errors_are_not_tried_again(ask, status):
    with FakeServer([(status, "no")]) as server, pytest.raises(ServingError, match="no") as caught:
        ask(server.target, ["a"])
    assert caught.value.code == status
    assert server.batches == [1]


@pytest.mark.parametrize("ask", [ask_blocking, ask_async])
def test_batches_are_cut_to_what_the_server_takes(ask):
    texts = [f"text {n}" for n in range(11)]
    details = "Task size {} is larger than maximum input batch size {}"
    with FakeServer(most=(5, Status.INVALID_ARGUMENT, details)) as server:
        translations = ask(server.target, texts)
        assert [each.text for each in translations] == [text.upper() for text in texts]
    assert server.batches == [11, 5, 5, 1]


def test_an_answer_of_another_shape_is_told_from_a_translators():
    class Scores(FakeServer):
        def Predict(self, request, context):
            response = predict_pb2.PredictResponse()
            response.outputs["score"].CopyFrom(tf.make_tensor_proto([1.0]))
            return response

    with Scores() as server, pytest.raises(UnexpectedResponseError, match="no output 'translat"):
        ask_blocking(server.target, ["a"])


def test_a_name_with_several_addresses_is_a_target():
    with FakeServer() as server:
        assert ask_blocking(f"dns:///{server.target}", ["a"])[0].text == "A"
