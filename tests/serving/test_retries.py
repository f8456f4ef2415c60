"""The client's retries, and how it cuts batches, against a server that fails on order."""

import threading
import time

import numpy as np
import pytest

from serving.api import _errors as errors
from serving.client import Translator, serving_pb2
from tests.attack.test_client import FLOAT, Server, Status, both, response, tensor, translate

UNAVAILABLE = (Status.UNAVAILABLE, "busy")


def failing(*failures):
    """A server that answers with these failures first."""

    def answer(method, request, number):
        return failures[number - 1] if number <= len(failures) else translate(method, request, 0)

    return Server(answer)


@both
@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (UNAVAILABLE, errors.ServerUnavailableError),
        ((Status.CANCELLED, "CANCELLED"), errors.ServerUnavailableError),
        ((Status.RESOURCE_EXHAUSTED, "quota exceeded for this key"), errors.RateLimitedError),
    ],
)
def test_a_request_that_was_not_taken_is_sent_again_until_retries_end(ask, failure, error):
    with failing(failure, failure) as server:
        assert [one.text for one in ask(server.target, ["a"] * 8)] == ["A"] * 8
    assert len(server.asked) == 3
    assert (np.diff(server.asked) >= [0.05, 0.15]).all()
    with failing(*[failure] * 9) as server, pytest.raises(error, match=failure[1]) as caught:
        ask(server.target, ["a"] * 8, retries=2)
    assert (caught.value.code, len(server.asked)) == (failure[0], 3)


def test_a_client_that_is_closed_during_a_call_does_not_try_again():
    def close(*_):
        threading.Thread(target=translator.close).start()
        time.sleep(1)
        return b""

    with Server(close) as server:
        translator = Translator(server.target, "m")
        with pytest.raises(errors.ServingError, match="CANCELLED"):
            translator.translate(["a"])
    assert len(server.asked) == 1


@both
def test_retries_end_at_the_deadline(ask):
    with failing(*[UNAVAILABLE] * 99) as server, pytest.raises(errors.DeadlineExceededError):
        ask(server.target, ["a"], timeout=0.3)
    assert 2 <= len(server.asked) < 5


@both
@pytest.mark.parametrize("status", [Status.INTERNAL, Status.DEADLINE_EXCEEDED])
def test_other_errors_are_not_tried_again(ask, status):
    with (
        failing((status, "no")) as server,
        pytest.raises(errors.ServingError, match="no") as caught,
    ):
        ask(server.target, ["a"])
    assert caught.value.code == status
    assert len(server.asked) == 1


@both
def test_batches_are_cut_to_what_the_server_takes(ask):
    sizes = []

    def answer(method, request, number):
        texts = serving_pb2.PredictRequest.FromString(request).inputs["text"].string_val
        sizes.append(len(texts))
        if len(texts) > 5:
            refusal = f"Task size {len(texts)} is larger than maximum input batch size 5"
            return Status.INVALID_ARGUMENT, refusal
        return translate(method, request, number)

    texts = [f"text {n}" for n in range(11)]
    with Server(answer) as server:
        translations = ask(server.target, texts)
    assert [each.text for each in translations] == [text.upper() for text in texts]
    assert sizes == [11, 5, 5, 1]


def test_an_answer_of_another_shape_is_told_from_a_translators():
    scores = response({"score": tensor(FLOAT, [1], float_val=[1.0])})
    with (
        Server(lambda *_: scores) as server,
        Translator(server.target, "m") as translator,
        pytest.raises(errors.UnexpectedResponseError, match="has score, but not translat"),
    ):
        translator.translate(["a"])


def test_a_name_with_several_addresses_is_a_target():
    with Server(translate) as server, Translator(f"dns:///{server.target}", "m") as translator:
        assert translator.translate(["a"])[0].text == "A"
