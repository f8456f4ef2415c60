"""Answers of servers, wrong by mistake or by intent: a client raises its own errors alone."""

import asyncio
import concurrent.futures
import threading
import time
from collections import Counter
from itertools import count

import grpc
import numpy as np
import pytest

from serving.client import (
    AsyncTranslator,
    DeadlineExceededError,
    MessageTooLargeError,
    RateLimitedError,
    ServerUnavailableError,
    ServingError,
    SignatureNotFoundError,
    Translator,
    UnexpectedResponseError,
    _transport,
    serving_pb2,
)
from serving.client import _protobuf as messages

Status = grpc.StatusCode
STRING, FLOAT, BOOL = messages.STRING, messages.FLOAT, messages.BOOL


class Server(grpc.GenericRpcHandler):
    """Answers every method with what `answer(method, request, number)` returns: bytes, or a status.

    `asked` has the time of each request.
    """

    def __init__(self, answer):
        self.answer, self.asked = answer, []
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(4), handlers=[self])
        self.target = f"localhost:{self._server.add_insecure_port('localhost:0')}"
        self._server.start()

    def service(self, call_details):
        def run(request, context):
            self.asked.append(time.monotonic())
            found = self.answer(call_details.method, request, len(self.asked))
            return found if isinstance(found, bytes) else context.abort(*found)

        return grpc.unary_unary_rpc_method_handler(run)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.stop(None).wait()


def blocking(target, *arguments, method="translate", model="m", how=None, **options):
    with Translator(target, model, **options) as translator:
        return getattr(translator, method)(*arguments, **(how or {}))


def with_asyncio(target, *arguments, method="translate", model="m", how=None, **options):
    made = AsyncTranslator(target, model, **options)  # no loop runs yet

    async def ask():
        async with made as translator:
            return await getattr(translator, method)(*arguments, **(how or {}))

    return asyncio.run(ask())


both = pytest.mark.parametrize("ask", [blocking, with_asyncio])


def tensor(dtype, shape, **fields):
    made = messages.TensorProto(dtype=dtype, **fields)
    for size in shape:
        made.tensor_shape.dim.add(size=size)
    return made


def floats(*shape, values=None):
    return tensor(FLOAT, shape, float_val=[1.0] * (np.prod(shape) if values is None else values))


def strings(*shape):
    return tensor(STRING, shape, string_val=[b"a"] * np.prod(shape))


def translations(texts):
    return {
        "translation": messages.string_tensor([text.upper() for text in texts]),
        "score": floats(len(texts)),
        "truncated": tensor(BOOL, [len(texts)], bool_val=[False] * len(texts)),
    }


def response(outputs):
    made = serving_pb2.PredictResponse()
    for name, value in outputs.items():
        made.outputs[name].CopyFrom(value)
    return made.SerializeToString()


def texts_of(request):
    return list(serving_pb2.PredictRequest.FromString(request).inputs["text"].string_val)


def translate(method, request, number):
    return response(translations(texts_of(request)))


def metadata(value):
    made = serving_pb2.GetModelMetadataResponse()
    made.metadata["signature_def"].type_url = "x/tensorflow.serving.SignatureDefMap"
    made.metadata["signature_def"].value = value
    return made.SerializeToString()


MALFORMED = {
    "numbers for texts": {"translation": floats(1)},
    "texts for numbers": {"score": tensor(STRING, [1], string_val=[b"1.0"])},
    "numbers for flags": {"truncated": floats(1)},
    "three of four bytes": {"score": tensor(FLOAT, [1], tensor_content=b"abc")},
    "no values": {"score": tensor(FLOAT, [1])},
    "a scalar": {"score": tensor(FLOAT, [], float_val=[1.0])},
    "another batch": {"score": floats(2)},
    "a dimension below 0": {"score": floats(-1, values=1)},
    "texts as bytes": {"translation": tensor(STRING, [1], tensor_content=b"\x01a")},
    "a dtype of tomorrow": {"score": tensor(4711, [1])},
}
PAIR = {name: strings(1, 2) for name in ("tokens", "source_tokens", "target_tokens")}
TYPED, NOT_ONE = UnexpectedResponseError, "one answer has|2 tokens, 3 log_probs"
NBEST = {"translations": strings(1, 2), "scores": floats(1, 3)}
ALIGN = {"translation": strings(1), **PAIR, "attention_weights": floats(1, 2, 1)}
SCORE = {**translations([b"a"]), **PAIR, "log_probs": floats(1, 3)}
LARGE = response({"translation": tensor(STRING, [1], string_val=[bytes(66 * 2**20)])})
UNSIGNED, STOPPED = (Status.FAILED_PRECONDITION, "Signature translate"), (Status.CANCELLED, "no")
ATTACKS = [
    *(
        ("translate", response({**translations([b"a"]), **output}), TYPED, f"output '{name}'")
        for output in MALFORMED.values()
        for name in output
    ),
    ("nbest", response(NBEST), TYPED, NOT_ONE),
    ("align", response(ALIGN), TYPED, NOT_ONE),
    ("score", response(SCORE), TYPED, NOT_ONE),
    ("translate", LARGE, MessageTooLargeError, "larger than"),
    ("translate", UNSIGNED, SignatureNotFoundError, "List its signatures"),
    ("translate", STOPPED, ServerUnavailableError, "Try again"),
    ("metadata", metadata(bytes(2**22)), TYPED, "something else"),
    ("metadata", b"", TYPED, "no signatures"),
    ("metadata", metadata(b"\xff\xff\xff"), TYPED, "no signatures"),
]


@both
@pytest.mark.parametrize(("method", "answer", "error", "message"), ATTACKS, ids=count())
def test_an_answer_that_is_not_one_is_a_typed_error(method, answer, error, message, ask):
    texts = {"score": [["a"], ["b"]], "metadata": []}.get(method, [["a"]])
    with Server(lambda *_: answer) as server, pytest.raises(error, match=message):
        ask(server.target, *texts, method=method)


@pytest.mark.parametrize("shape", [[1, 2**40], [1, 0, 2**62], [1, 2**31, 2**31]])
def test_a_shape_far_beyond_what_was_sent_takes_no_memory(shape):
    with pytest.raises(ValueError, match="expected fewer elements"):
        messages.tensor_values(floats(*shape, values=1))


def test_no_damage_to_an_answer_raises_anything_else():
    """Bytes are changed, cut out and doubled, many times over, seeded."""
    rng = np.random.default_rng(23)
    content = tensor(FLOAT, [3], tensor_content=np.float32([-1, -2, -3]).tobytes())
    whole = response({**translations([b"one", b"two", b"x" * 50]), "score": content})
    kinds = Counter()

    def damaged(*_):
        data = bytearray(whole)
        for _ in range(rng.integers(1, 4)):
            at, more, kind = (int(x) for x in rng.integers([len(data), 4, 3]))
            part = data[at : at + 1 + more]
            data[at : at + 1 + more] = (b"", part * 2, rng.bytes(len(part)))[kind]
        return bytes(data)

    with Server(damaged) as server, Translator(server.target, "m") as translator:
        for _ in range(300):
            try:
                found = translator.translate(["one", "two", "three"])
            except UnexpectedResponseError:
                kinds["refused"] += 1
            else:
                kinds["read"] += 1
                assert all(isinstance(one.text, str) for one in found)
                assert all(isinstance(one.score, float) for one in found)
    assert min(kinds["refused"], kinds["read"]) > 20


# Limits


TOO_LARGE = "Received message larger than max (5 vs. 4)", "gRPC message exceeds maximum size 4: 5"


@pytest.mark.parametrize("details", [*TOO_LARGE, "OOM when allocating tensor with shape[64,8000]"])
def test_only_what_is_too_large_is_cut(details):
    refused = Status.RESOURCE_EXHAUSTED, details

    def answer(method, request, number):
        return refused if len(texts_of(request)) > 4 else translate(method, request, 0)

    with Server(answer) as server:
        assert len(blocking(server.target, ["a"] * 8, retries=0)) == 8
    assert len(server.asked) == 3
    with Server(lambda *_: refused) as server, pytest.raises(MessageTooLargeError):
        blocking(server.target, ["a"], retries=0)


@pytest.mark.parametrize("limit", ["9" * 2970, "0"])
def test_a_limit_that_makes_no_sense_ends_the_call(limit):
    refused = Status.INVALID_ARGUMENT, f"maximum input batch size {limit}"
    with Server(lambda *_: refused) as server, pytest.raises(ServingError):
        blocking(server.target, ["a"] * 8)
    assert len(server.asked) == 1


def test_the_budget_ends_retries_of_all_calls_together():
    busy = Status.UNAVAILABLE, "busy"
    with Server(lambda *_: busy) as server, Translator(server.target, "m", timeout=60) as client:
        for _ in range(6):
            with pytest.raises(ServerUnavailableError):
                client.translate(["a"])
    assert 10 <= len(server.asked) <= 6 + 10


def test_waiting_for_a_server_leaves_the_retries_to_its_requests(monkeypatch):
    monkeypatch.setattr(_transport, "READY_POLL", 0.001)
    polls = 40

    def starting(method, request, number):
        if number <= polls or number == polls + 2:
            return Status.UNAVAILABLE, "starting"
        if method.endswith("GetModelStatus"):
            status = serving_pb2.GetModelStatusResponse()
            status.model_version_status.add(version=1, state=30)
            return status.SerializeToString()
        return translate(method, request, number)

    with Server(starting) as server, Translator(server.target, "m") as client:
        client.wait_ready(60)
        assert len(server.asked) == polls + 1
        assert client.translate(["a"])[0].text == "A"
    assert len(server.asked) == polls + 3


# Retries

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
        (UNAVAILABLE, ServerUnavailableError),
        ((Status.CANCELLED, "CANCELLED"), ServerUnavailableError),
        ((Status.RESOURCE_EXHAUSTED, "quota exceeded for this key"), RateLimitedError),
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
        with pytest.raises(ServingError, match="CANCELLED"):
            translator.translate(["a"])
    assert len(server.asked) == 1


@both
def test_retries_end_at_the_deadline(ask):
    with failing(*[UNAVAILABLE] * 99) as server, pytest.raises(DeadlineExceededError):
        ask(server.target, ["a"], timeout=0.3)
    assert 2 <= len(server.asked) < 5


@both
@pytest.mark.parametrize("status", [Status.INTERNAL, Status.DEADLINE_EXCEEDED])
def test_other_errors_are_not_tried_again(ask, status):
    with (
        failing((status, "no")) as server,
        pytest.raises(ServingError, match="no") as caught,
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
        pytest.raises(UnexpectedResponseError, match="has score, but not translat"),
    ):
        translator.translate(["a"])


def test_a_name_with_several_addresses_is_a_target():
    with Server(translate) as server, Translator(f"dns:///{server.target}", "m") as translator:
        assert translator.translate(["a"])[0].text == "A"
