"""The check beside a server: alike, and where answers are falsified."""

import contextlib
import http.client
import itertools
import json
import re

import grpc
import pytest
from tensorflow_serving.apis import predict_pb2

from serving.check import __main__ as check
from serving.check._against import compare
from tests.attack.test_client import Server
from tests.serving.conftest import add_version


@pytest.fixture
def version(saved, tmp_path):
    """The version that `protocol_server` serves as upper, too."""
    return add_version(saved / "upper", tmp_path / "upper", 1)


def falsify(answer):
    """Another answer to a request: a number more, or a text longer."""
    proto = answer.outputs[min(answer.outputs)]
    if proto.float_val:
        proto.float_val[0] += 1
    elif proto.string_val:
        proto.string_val[0] += b"!"
    return answer


@contextlib.contextmanager
def proxy(target, every):
    """A server that hands on requests, and falsifies one in so many answers of Predict."""
    counts, false = itertools.count(1), []

    def answer(method, request, number):
        try:
            found = channel.unary_unary(method)(request, timeout=60)
        except grpc.RpcError as error:
            return error.code(), error.details()
        if method.endswith("/Predict") and next(counts) % every == 0:
            response = predict_pb2.PredictResponse.FromString(found)
            before = response.SerializeToString(deterministic=True)
            found = falsify(response).SerializeToString(deterministic=True)
            false.append(found != before)
        return found

    with grpc.insecure_channel(target) as channel, Server(answer) as server:
        yield server.target, false


def addresses(server):
    return f"localhost:{server.port}", f"localhost:{server.rest_port}"


def test_a_server_of_the_same_version_answers_alike(version, protocol_server, capsys):
    target, rest = addresses(protocol_server)
    assert check.main([str(version), "--against", target, "--rest", rest]) == 0
    (asked,) = re.findall(r"all (\d+) requests alike", capsys.readouterr().out)
    assert int(asked) > 20


def test_one_false_answer_in_ten_is_told(version, protocol_server):
    with proxy(addresses(protocol_server)[0], every=10) as (target, false):
        asked, differences = compare(version, target, "upper")
    assert sum(false) >= 1
    assert len(differences) == sum(false)
    assert all("differs" in difference for difference in differences)
    assert asked > 10 * len(differences)


def test_rows_of_rest_that_change_places_are_told(version, protocol_server, monkeypatch):
    target, rest = addresses(protocol_server)
    read = http.client.HTTPResponse.read

    def turned_around(response, *size):
        answer = json.loads(read(response, *size))
        outputs = answer.get("outputs", {})
        for rows in outputs.values() if isinstance(outputs, dict) else [outputs]:
            rows.reverse()
        return json.dumps(answer).encode()

    monkeypatch.setattr(http.client.HTTPResponse, "read", turned_around)
    _, differences = compare(version, target, "upper", rest)
    assert differences
    assert all(difference.startswith("REST: signature") for difference in differences)


def test_what_rest_refuses_is_told_in_its_words(version, protocol_server):
    target, rest = addresses(protocol_server)
    _, differences = compare(version, target, "nobody", rest)
    (line, *_) = [each for each in differences if each.startswith("REST: signature")]
    assert "404" in line
    assert "Servable not found for request: Specific(nobody, 1)" in line


def test_signatures_of_another_model_are_told(version, protocol_server):
    other = version.rename(version.with_name("3"))
    _, differences = compare(other, addresses(protocol_server)[0], "half")
    (line,) = [each for each in differences if each.startswith("metadata: signatures differ: ")]
    assert line.endswith("align, nbest, parse, serving_default, sum, translate")


def test_a_server_that_is_not_there_is_one_line(version, capsys):
    assert check.main([str(version), "--against", "localhost:1"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("status: UNAVAILABLE")
