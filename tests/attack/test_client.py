"""Answers of servers, wrong by mistake or by intent: a client raises its own errors alone."""

import asyncio
import concurrent.futures
import time
from collections import Counter

import grpc
import numpy as np
import pytest

from serving.client import (
    AsyncTranslator,
    MessageTooLargeError,
    RateLimitedError,
    ServerUnavailableError,
    ServingError,
    Translator,
    UnexpectedResponseError,
    protocol,
    serving_pb2,
)
from serving.client import protobuf as messages

Status = grpc.StatusCode
LIMITED = Status.RESOURCE_EXHAUSTED, "quota exceeded for this key"


class Server(grpc.GenericRpcHandler):
    """Answers every method with what `answer(method, request, call)` returns: bytes, or a status.

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
            if isinstance(found, bytes):
                return found
            status, details, *metadata = found
            context.set_trailing_metadata(metadata)
            context.abort(status, details)

        return grpc.unary_unary_rpc_method_handler(run)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.stop(None).wait()


def blocking(target, texts, method="translate", **options):
    with Translator(target, "m", **options) as translator:
        return getattr(translator, method)(texts)


def with_asyncio(target, texts, method="translate", **options):
    async def ask():
        async with AsyncTranslator(target, "m", **options) as translator:
            return await getattr(translator, method)(texts)

    return asyncio.run(ask())


both = pytest.mark.parametrize("ask", [blocking, with_asyncio])


def tensor(dtype, shape, **fields):
    made = messages.TensorProto(dtype=dtype, **fields)
    for size in shape:
        made.tensor_shape.dim.add(size=size)
    return made


def translations(texts):
    return {
        "translation": messages.string_tensor([text.upper() for text in texts]),
        "score": tensor(messages.FLOAT, [len(texts)], float_val=[-1.0] * len(texts)),
        "truncated": tensor(messages.BOOL, [len(texts)], bool_val=[False] * len(texts)),
    }


def response(outputs):
    made = serving_pb2.PredictResponse()
    for name, value in outputs.items():
        made.outputs[name].CopyFrom(value)
    return made.SerializeToString()


def translate(method, request, number):
    texts = serving_pb2.PredictRequest.FromString(request).inputs["text"].string_val
    return response(translations(list(texts)))


STRING, FLOAT, BOOL = messages.STRING, messages.FLOAT, messages.BOOL
MALFORMED = {
    "numbers for texts": ("translation", tensor(FLOAT, [1], float_val=[1.0])),
    "texts for numbers": ("score", tensor(STRING, [1], string_val=[b"1.0"])),
    "numbers for flags": ("truncated", tensor(FLOAT, [1], float_val=[1.0])),
    "three of four bytes": ("score", tensor(FLOAT, [1], tensor_content=b"abc")),
    "no values": ("score", tensor(FLOAT, [1])),
    "a scalar": ("score", tensor(FLOAT, [], float_val=[1.0])),
    "another batch": ("score", tensor(FLOAT, [2], float_val=[1.0, 2.0])),
    "a dimension below 0": ("score", tensor(FLOAT, [-1], float_val=[1.0])),
    "texts as bytes": ("translation", tensor(STRING, [1], tensor_content=b"\x01a")),
    "a dtype of tomorrow": ("score", tensor(4711, [1])),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_translation_is_a_typed_error(what):
    name, value = MALFORMED[what]
    answer = response({**translations([b"a"]), name: value})
    with (
        Server(lambda *_: answer) as server,
        pytest.raises(UnexpectedResponseError, match=f"output '{name}'"),
    ):
        blocking(server.target, ["a"])


@pytest.mark.parametrize("shape", [[1, 2**40], [1, 0, 2**62], [1, 2**31, 2**31]])
def test_a_shape_far_beyond_what_was_sent_takes_no_memory(shape):
    value = tensor(FLOAT, shape, float_val=[1.0])
    with pytest.raises(ValueError, match="expected fewer elements"):
        messages.tensor_values(value)


NBEST = {
    "translations": tensor(STRING, [1, 2], string_val=[b"a", b"b"]),
    "scores": tensor(FLOAT, [1, 3], float_val=[1.0, 2.0, 3.0]),
}
ALIGN = {
    "translation": tensor(STRING, [1], string_val=[b"a"]),
    "source_tokens": tensor(STRING, [1, 2], string_val=[b"a", b"b"]),
    "target_tokens": tensor(STRING, [1, 2], string_val=[b"a", b"b"]),
    "attention_weights": tensor(FLOAT, [1, 2, 1], float_val=[1.0, 1.0]),
}


SCORE = {
    "score": tensor(FLOAT, [1], float_val=[1.0]),
    "tokens": tensor(STRING, [1, 2], string_val=[b"a", b"b"]),
    "log_probs": tensor(FLOAT, [1, 3], float_val=[1.0, 1.0, 1.0]),
    "truncated": tensor(BOOL, [1], bool_val=[False]),
}


@pytest.mark.parametrize(
    ("method", "outputs", "texts"),
    [("nbest", NBEST, [["a"]]), ("align", ALIGN, [["a"]]), ("score", SCORE, [["a"], ["b"]])],
)
def test_outputs_that_do_not_fit_together_are_a_typed_error(method, outputs, texts):
    with (
        Server(lambda *_: response(outputs)) as server,
        Translator(server.target, "m") as translator,
        pytest.raises(UnexpectedResponseError, match=r"one answer has|2 tokens, 3 log_probs"),
    ):
        getattr(translator, method)(*texts)


def unknown_field(size):
    """A message of one field that nobody knows."""
    varint, left = b"", size
    while left > 127:
        varint, left = varint + bytes([left & 127 | 128]), left >> 7
    return b"\xfa\x3e" + varint + bytes([left]) + bytes(size)


@both
def test_an_answer_larger_than_any_that_was_asked_for_is_not_kept(ask):
    with (
        Server(lambda *_: unknown_field(66 * 2**20)) as server,
        pytest.raises(MessageTooLargeError),
    ):
        ask(server.target, ["a"])


def test_metadata_of_more_than_4_megabytes_is_not_read():
    with (
        Server(lambda *_: unknown_field(2**22)) as server,
        Translator(server.target, "m") as translator,
        pytest.raises(UnexpectedResponseError, match="something else"),
    ):
        translator.metadata()


@pytest.mark.parametrize("value", [None, b"\xff\xff\xff"])
def test_metadata_without_signatures_is_a_typed_error(value):
    made = serving_pb2.GetModelMetadataResponse()
    if value is not None:
        made.metadata["signature_def"].type_url = "x/tensorflow.serving.SignatureDefMap"
        made.metadata["signature_def"].value = value
    with (
        Server(lambda *_: made.SerializeToString()) as server,
        Translator(server.target, "m") as translator,
        pytest.raises(UnexpectedResponseError, match="no signatures"),
    ):
        translator.metadata()


def test_no_damage_to_an_answer_raises_anything_else():
    """Bytes are changed, cut out and doubled, many times over, seeded."""
    rng = np.random.default_rng(23)
    content = np.float32([-1, -2, -3]).tobytes()
    whole = response(
        {
            **translations([b"one", b"two", b"x" * 50]),
            "score": tensor(FLOAT, [3], tensor_content=content),
        }
    )
    kinds = Counter()

    def damaged(*_):
        data = bytearray(whole)
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(len(data)))
            match rng.integers(3):
                case 0:
                    data[at] = rng.integers(256)
                case 1:
                    del data[at : at + int(rng.integers(1, 5))]
                case 2:
                    data[at:at] = data[at : at + int(rng.integers(1, 5))]
        return bytes(data)

    with Server(damaged) as server, Translator(server.target, "m") as translator:
        for _ in range(500):
            try:
                found = translator.translate(["one", "two", "three"])
            except UnexpectedResponseError:
                kinds["refused"] += 1
            else:
                kinds["read"] += 1
                assert all(isinstance(one.text, str) for one in found)
                assert all(isinstance(one.score, float) for one in found)
    assert min(kinds["refused"], kinds["read"]) > 20


@both
def test_a_rate_limit_is_waited_out(ask):
    def answer(method, request, number):
        return LIMITED if number < 3 else translate(method, request, number)

    with Server(answer) as server:
        assert [one.text for one in ask(server.target, ["a"] * 8)] == ["A"] * 8
    assert len(server.asked) == 3
    pauses = np.diff(server.asked)
    assert pauses[0] >= 0.05
    assert pauses[1] >= 0.15


@both
def test_a_rate_limit_that_stays_has_its_own_error(ask):
    with (
        Server(lambda *_: LIMITED) as server,
        pytest.raises(RateLimitedError, match=r"takes no more requests now.*quota") as caught,
    ):
        ask(server.target, ["a"] * 8, retries=2)
    assert caught.value.code == Status.RESOURCE_EXHAUSTED
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    "details",
    [
        "Received message larger than max (5000000 vs. 4194304)",
        "gRPC message exceeds maximum size 4194304: 5000000",
        "OOM when allocating tensor with shape[64,8000] and type float",
    ],
)
def test_only_what_is_too_large_is_cut(details):
    def answer(method, request, number):
        texts = serving_pb2.PredictRequest.FromString(request).inputs["text"].string_val
        too_large = len(texts) > 4
        return (Status.RESOURCE_EXHAUSTED, details) if too_large else translate(method, request, 0)

    with Server(answer) as server:
        assert len(blocking(server.target, ["a"] * 8, retries=0)) == 8
    assert len(server.asked) == 3
    always = Status.RESOURCE_EXHAUSTED, details
    with Server(lambda *_: always) as server, pytest.raises(MessageTooLargeError):
        blocking(server.target, ["a"], retries=0)


def test_the_budget_ends_retries_of_all_calls_together():
    busy = Status.UNAVAILABLE, "busy"
    with Server(lambda *_: busy) as server, Translator(server.target, "m", timeout=60) as client:
        for _ in range(6):
            with pytest.raises(ServerUnavailableError):
                client.translate(["a"])
    assert 10 <= len(server.asked) <= 6 + 10


@pytest.mark.parametrize("limit", ["9" * 2970, "0"])
def test_a_limit_that_makes_no_sense_ends_the_call(limit):
    refused = Status.INVALID_ARGUMENT, f"maximum input batch size {limit}"
    with Server(lambda *_: refused) as server, pytest.raises(ServingError):
        blocking(server.target, ["a"] * 8)
    assert len(server.asked) == 1


def test_waiting_for_a_server_leaves_the_retries_to_its_requests(monkeypatch):
    monkeypatch.setattr(protocol, "_READY_POLL", 0.001)
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
