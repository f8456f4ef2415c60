"""HTTP bodies, numbers, strings and connections that are not meant well."""

import gzip
import json
import socket
import time

import pytest

from serving.server import rest_server
from tests.attack.conftest import ask, raw, serving, within
from tests.serving.test_rest import free_port

HALF = "/v1/models/half:predict"
UPPER = "/v1/models/upper:predict"


def test_a_bomb_of_gzip_is_refused_without_unpacking_it(victim):
    import psutil

    zeros = gzip.compress(b"\0" * 2**24) * 128  # 2 GiB in 2 MB, in members
    before = psutil.Process().memory_info().rss
    with within(30):
        status, text = ask(victim.rest_port, HALF, zeros, {"Content-Encoding": "gzip"})
    assert (status, "larger than 104857600 bytes" in text) == (413, True)
    assert psutil.Process().memory_info().rss - before < 300 * 2**20


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Length": str(2**27)},
        {"Content-Length": "9" * 30},
        {"Transfer-Encoding": "chunked"},
    ],
)
def test_a_body_beyond_the_limit_is_refused(base, headers):
    flags = ["--model_name=upper", f"--model_base_path={base}", f"--rest_api_port={free_port()}"]
    with serving(*flags, "--max_request_bytes=1000") as server:
        head = f"POST {UPPER} HTTP/1.1\r\nHost: x\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        chunk = b"3e8\r\n" + b" " * 1000 + b"\r\n"
        body = chunk * 2 if "Transfer-Encoding" in headers else b" " * 2000
        answer = raw(server.rest_port, head.encode() + b"\r\n" + body)
        assert answer.split(b"\r\n")[0] in (
            b"HTTP/1.1 413 Request Entity Too Large",
            b"HTTP/1.1 413 Content Too Large",
            b"HTTP/1.1 400 Bad Request",  # a length of 30 digits
        )
        assert b"connection: close" in answer.lower()
        assert ask(server.rest_port, UPPER, {"instances": ["one"]})[0] == 200


def test_errors_repeat_256_bytes_of_a_request(victim):
    lists = [[0.5] * 300] * 300
    for body in ({"inputs": lists, "instances": lists}, {"x": lists, "signature_name": 1}):
        with within(30):
            status, text = ask(victim.rest_port, HALF, body)
        assert (status, len(text) < 1200) == (400, True)
    for name in ("x" * 10_000, "\n" * 10_000):
        status, text = ask(victim.rest_port, HALF, {"instances": [{name: 1}]})
        assert (status, len(json.loads(text)["error"]) < 1200) == (400, True)


@pytest.mark.parametrize(
    "body",
    [
        b'{"instances": [' + b"7" * 5000 + b"]}",
        b'{"instances": [-' + b"7" * 5000 + b"]}",
        b'{"instances": [1e' + b"7" * 5000 + b"]}",
        b'{"instances": ["\\ud800"]}',
        b'{"instances": [{"\\udfff": 1}]}',
        b'{"signature_name": "\\ud800", "instances": [1]}',
        b'{"examples": [{"\\ud800": 1}]}',
        b'{"instances": [{"b64": "\\ud800"}]}',
        b"[" * 200_000,
        b'{"a":' * 100_000,
        b"\xff\xfe\x00",
        b'{"instances": [null]}',
        b'{"instances": [[[]]]}',
        b'{"instances": [' + b",".join([b"1"] * 2) + b",]}",
        b'{"instances": [1' + b"[" * 500 + b"]" * 500 + b"]}",
        b'{"instances": ' + b"[" * 900 + b"]" * 900 + b"}",
    ],
)
@pytest.mark.parametrize("path", [HALF, UPPER, "/v1/models/half:classify"])
def test_numbers_and_strings_at_the_edge_are_bad_requests(victim, path, body):
    status, text = ask(victim.rest_port, path, body)
    if b"1e7" in body or b"[[[]]]" in body:  # floats have an infinity, and tensors no values
        assert status in (200, 400)
    else:
        assert (status, bool(json.loads(text)["error"])) == (400, True)


@pytest.mark.parametrize(
    "path",
    ["/v1/models/half/versions/" + "9" * 5000, "/v1/models/half/versions/٣", "/v1/" + "x" * 9000],
)
def test_paths_at_the_edge_are_bad_requests(victim, path):
    answer = raw(victim.rest_port, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert b" 400 " in answer.split(b"\r\n")[0]


@pytest.mark.parametrize(
    "data",
    [
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /v1/models/half:predict HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/models/half:predict HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 50_000,
    ],
)
def test_bad_http_is_a_bad_request(victim, data):
    # A connection that is ended while data arrives may end without the answer.
    assert raw(victim.rest_port, data)[:13] in (b"HTTP/1.1 400 ", b"")
    assert ask(victim.rest_port, HALF, {"instances": [[1.0]]})[0] == 200


@pytest.mark.parametrize("phase", ["head", "body", "second head"])
def test_a_trickle_does_not_hold_a_connection(base, monkeypatch, phase):
    monkeypatch.setattr(rest_server, "_HEAD_SECONDS", 1)
    flags = ["--model_name=upper", f"--model_base_path={base}", f"--rest_api_port={free_port()}"]
    head = f"POST {UPPER} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n".encode()
    with serving(*flags, "--rest_api_timeout_in_ms=1000") as server:
        with socket.create_connection(("127.0.0.1", server.rest_port), timeout=60) as connection:
            if phase == "second head":
                connection.sendall(b"GET /v1/models/upper HTTP/1.1\r\nHost: x\r\n\r\n")
                status = b""
                while b"AVAILABLE" not in status:
                    more = connection.recv(65536)
                    assert more
                    status += more
            connection.sendall(head + (b"\r\n" if phase == "body" else b"X: "))
            started, answer = time.monotonic(), b""
            while time.monotonic() - started < 25:
                try:
                    connection.sendall(b"a")
                    connection.settimeout(0.2)
                    if not (part := connection.recv(65536)):
                        break
                    answer += part
                except TimeoutError:
                    continue
                except OSError:
                    break
            assert time.monotonic() - started < 20
            assert (b"504" in answer) == (phase == "body")
        assert ask(server.rest_port, UPPER, {"instances": ["one"]})[0] == 200


def test_a_client_that_goes_does_not_leave_its_request(victim):
    body = json.dumps({"instances": ["a b c"] * 900}).encode()
    head = f"POST {UPPER} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", victim.rest_port)) as connection:
            connection.sendall(head + body)
    with within(20):
        assert ask(victim.rest_port, UPPER, {"instances": ["one"]})[0] == 200


def test_rows_are_bounded_over_rest_too(victim):
    status, text = ask(victim.rest_port, UPPER, {"instances": ["a"] * 1001})
    assert (status, "Task size 1001 is larger than" in text) == (400, True)
    examples = {"signature_name": "classify", "examples": [{"x": 1.0}] * 1001}
    status, text = ask(victim.rest_port, "/v1/models/half:classify", examples)
    assert (status, "Task size 1001 is larger than" in text) == (400, True)
