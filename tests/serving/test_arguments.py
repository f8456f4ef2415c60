"""Wrong arguments of clients: one line says what was expected, before anything is sent."""

import math

import numpy as np
import pytest

from serving.api._arguments import checked_texts
from serving.api._histories import history_columns
from serving.client import AsyncReader, Predictor, Reader, Tls, Translator

NO_TEXTS = ["one", b"one", None, 7, math.nan, {"a": 1}, {"a"}, np.zeros((2, 2))]
NO_TEXT = [None, math.nan, b"one", 7, ["one"], np.float32(1)]
NO_HISTORY = [None, math.nan, "a", ["time"], [1, 2], {1: [2.0]}, {"time": "12"}, {"time": 3.0}]


def assert_refused(ask, *arguments):
    """Check that the arguments are rejected with a one-line error that says what was expected."""
    with pytest.raises(
        (TypeError, ValueError), match=r"^(expected .*Received: |a history )"
    ) as caught:
        ask(*arguments)
    assert str(caught.value).count("\n") == 0


@pytest.fixture
def clients():
    """Functions that ask clients of a target where nobody listens."""

    names = {
        Translator: ["translate", "nbest", "align", "score"],
        Reader: ["read", "regions", "nbest"],
        Predictor: ["outcome"],
    }
    clients = {kind("localhost:1", "m", retries=0): methods for kind, methods in names.items()}
    return [[getattr(client, name) for name in methods] for client, methods in clients.items()]


def test_what_is_no_list_of_texts_or_images_is_refused(clients):
    (*ask_texts, score), images, (outcome,) = clients
    for wrong in NO_TEXTS:
        for ask in (*ask_texts, *images, outcome):
            assert_refused(ask, wrong)
        assert_refused(score, wrong, ["a"])
        assert_refused(score, ["a"], wrong)
    assert_refused(score, ["a", "b"], ["c"])


def test_what_is_no_text_or_image_is_refused(clients):
    (*ask_texts, score), images, _ = clients
    for wrong in NO_TEXT:
        for ask in ask_texts:
            assert_refused(ask, ["a", wrong])
        assert_refused(score, [wrong], ["a"])
        assert_refused(score, ["a"], [wrong])
        if wrong != b"one":
            for ask in images:
                assert_refused(ask, [wrong])


@pytest.mark.parametrize("wrong", NO_HISTORY)
def test_what_is_no_history_is_refused(wrong):
    assert_refused(history_columns, wrong, ["time", "x"])


def test_arrays_and_iterators_of_texts_are_lists_of_them():
    assert checked_texts(np.array(["a", "b"])) == ["a", "b"]
    assert checked_texts(str(n) for n in range(2)) == ["0", "1"]


@pytest.mark.parametrize("kind", [Translator, AsyncReader])
@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *(("target", x) for x in (None, b"localhost:1", 8500)),
        *(("model", x) for x in (None, 7)),
        *(("version", x) for x in ("1", -1, 2**63, 1.5)),
        *(("label", x) for x in (b"a", 7)),
        *(("timeout", x) for x in ("5", None, True, 0, -1, math.nan, math.inf, 1e10)),
        *(("batch_size", x) for x in (0, "8", 1.5, None)),
        *(("retries", x) for x in (-1, 5, "2")),
    ],
)
def test_a_clients_own_arguments_are_checked(kind, name, wrong):
    arguments = {"target": "localhost:1", "model": "m", name: wrong}
    assert_refused(lambda: kind(**arguments))


def test_a_version_has_a_number_or_a_label():
    for half in ("certificate", "private_key"):  # and a certificate its key
        with pytest.raises(ValueError, match="a client's certificate needs its private key"):
            Tls(**{half: "client.pem"})
    assert_refused(lambda: Translator("localhost:1", "m", version=1, label="a"))
