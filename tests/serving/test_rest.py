"""The REST interface, asked over HTTP."""

import base64
import http.client
import json
import socket
import threading
import urllib.error
import urllib.request

import pytest

from serving.server._calls import Workers
from serving.server._settings import METRICS
from tests.attack.conftest import tensor_request
from tests.serving.conftest import serving


def ask(port, path, body=None, method=None, **headers):
    """(status, JSON or text) of a request of its own connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    try:
        connection.request(method or ("GET" if body is None else "POST"), path, body, headers)
        response = connection.getresponse()
        text = response.read().decode()
        is_json = response.headers["Content-Type"] == "application/json"
        return response.status, json.loads(text) if is_json else text
    finally:
        connection.close()


@pytest.fixture
def rest(protocol_server):
    return lambda *arguments: ask(protocol_server.rest_port, *arguments)


PREDICT, UPPER = "/v1/models/half:predict", "/v1/models/upper:predict"
SUM = {"signature_name": "sum"}
LATIN = {"b64": base64.b64encode(b"a\xff").decode()}


def said(text, score=-0.5):
    return {"translation": text, "score": score, "truncated": False}


@pytest.mark.parametrize(
    ("path", "body", "answer"),
    [
        (PREDICT, {"instances": [[1.0], [6]]}, {"predictions": [[2.5], [5.0]]}),
        (PREDICT, {"inputs": [[1.0], [6]]}, {"outputs": [[2.5], [5.0]]}),
        (PREDICT, {"inputs": {"x": [[1]]}}, {"outputs": [[2.5]]}),
        (PREDICT, {"instances": [[1e9], [0.1]]}, {"predictions": [[5e8], [2.05]]}),  # short
        (
            *(PREDICT, {**SUM, "instances": [{"a": 1, "b": 10}, {"a": 2.0, "b": 20}]}),
            {"predictions": [11, 22]},
        ),
        (PREDICT, {**SUM, "inputs": {"a": [1, 2], "b": [10, 20]}}, {"outputs": [11, 22]}),
        (
            *(UPPER, {"instances": ["one two", {"b64": "w6k="}]}),
            {"predictions": [said("ONE TWO", -1.0), said("é")]},
        ),
        (UPPER, {"instances": [LATIN]}, {"predictions": [said("A\ufffd")]}),
        (
            *(UPPER, {"inputs": {"text": ["one"]}}),
            {"outputs": {name: [value] for name, value in said("ONE").items()}},
        ),
    ],
)
def test_rows_and_columns_are_answered_as_they_were_sent(rest, path, body, answer):
    assert rest(path, body) == (200, answer)


@pytest.mark.parametrize("which", ["", "/versions/3"])
def test_a_version_is_in_the_path(rest, which):
    assert rest(f"/v1/models/half{which}:predict", {"instances": [[2]]})[0] == 200
    status = {"error_code": "OK", "error_message": ""}
    version = {"version": "3", "state": "AVAILABLE", "status": status}
    assert rest(f"/v1/models/half{which}") == (200, {"model_version_status": [version]})
    status, answer = rest(f"/v1/models/half{which}/metadata")
    assert (status, answer["model_spec"]["version"]) == (200, "3")
    signature = answer["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert signature["inputs"]["x"]["dtype"] == "DT_FLOAT"


ABSENT = [
    ("/v1/models/m:predict", {"instances": [1]}, "Servable not found for request: Latest"),
    ("/v1/models/half/versions/7:predict", {"instances": [1]}, "request: Specific(half, 7)"),
    ("/v1/models/half/versions/7", None, "Could not find version 7 of model half"),
    ("/v1/x", None, "Malformed request: GET /v1/x"),
    (PREDICT, None, "Could not find any versions of model half:predict"),
]
BODIES = [
    (b"", "JSON Parse error: "),
    (b"\xff", "JSON Parse error: "),
    (b"[" * 100_000, "JSON Parse error: nested too deep"),
    (b'{"instances": [1' + b"1" * 5000 + b"]}", "JSON Parse error: Exceeds"),
    (b'{"instances": [' + b"," * 10_000_001, "more than 10000000 values"),
    ([1], "expected a JSON object"),
    ({}, "expected either 'instances' or 'inputs'"),
    ({"instances": []}, "'instances' must be a list of at least one value"),
    ({"signature_name": 1, "inputs": 1}, "'signature_name' must be a string"),
    ({"signature_name": "x", "instances": [1]}, 'Serving signature key "x" not found.'),
    ({"instances": ["a"]}, "input x: 'a' is not of expected type: float"),
    ({"instances": [None]}, "input x: None is not of expected type: float"),
    ({"instances": [[1], [1, 2]]}, "lists of different lengths"),
    ({"inputs": [[1], [1, 2]]}, "lists of different lengths"),
    ({"instances": [{"z": 1}]}, "an object with the keys ['x']: is {'z': 1}"),
    ({"instances": [{"x": [1]}, 1]}, "instance 1 must be an object"),
    ({"instances": [1, {"x": 1}]}, "is not of expected type: float"),
    ({"inputs": {"z": [1]}}, "'inputs' must have the keys ['x']: has ['z']"),
    ({"inputs": [2**24 + 1]}, "16777217 is not of expected type: float"),
    ({"inputs": [1e39]}, "input x: overflow"),
    ({**SUM, "instances": [1]}, "objects with the keys ['a', "),
    ({**SUM, "instances": [{"a": 1, "b": 1.5}]}, "input b: 1.5 is not of expected type: int64"),
    ({**SUM, "inputs": {"a": [1], "b": [2**63]}}, "input b: "),
]
BAD = [
    *((PREDICT, *row) for row in BODIES),
    ("/v1/models/half/versions/9" + "9" * 30, None, "Failed to convert version"),
    ("/v1/models/half/versions/9999999999999999999", None, "Failed to convert version"),
    ("/v1/models/half/versions/x", None, "Failed to convert version: x to numeric"),
    (UPPER, {"instances": [{"b64": "?"}]}, "input text: "),
    (UPPER, {"instances": ["\ud800"]}, "surrogates not allowed"),
    (UPPER, {"instances": [["a"]]}, "Shape of tensor"),
]


@pytest.mark.parametrize(
    ("status", "path", "body", "message"),
    [*((404, *row) for row in ABSENT), *((400, *row) for row in BAD)],
)
def test_a_bad_request_is_an_error_that_says_why(rest, status, path, body, message):
    code, answer = rest(path, body)
    assert (code, message in answer["error"]) == (status, True), answer
    assert len(answer["error"]) < 400
    assert "\n" not in answer["error"]


def test_a_compressed_body_is_an_error_that_says_so(protocol_server):
    body, port = {"instances": [[1.0]]}, protocol_server.rest_port
    for encoding, status in (("identity", 200), ("gzip", 400), ("br, gzip", 400)):
        code, answer = ask(port, PREDICT, body, **{"Content-Encoding": encoding})
        assert code == status
        assert status == 200 or answer["error"].endswith(f"Received: {encoding}")


def test_requests_are_counted_as_prometheus_text(rest):
    rest(PREDICT, {"instances": [[1.0]]})
    for number in range(20):
        rest(f"/v1/models/m{number}:predict", {"instances": [[1.0]]})
    status, text = rest(METRICS)
    assert status == 200
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    counted = ':tensorflow:serving:request_count{{model_name="{}",status="{}"}}'
    assert float(lines[counted.format("half", "OK")]) >= 1
    # Names that were only asked for are no labels.
    assert float(lines[counted.format("", "NOT_FOUND")]) >= 20
    latency = ':tensorflow:serving:request_latency_{}{{API="Predict",entrypoint="REST",'
    bucket = latency.format("bucket") + 'le="+Inf",model_name="half"}'
    assert lines[bucket] == lines[latency.format("count") + 'model_name="half"}']
    assert float(lines[latency.format("sum") + 'model_name="half"}']) > 0
    assert lines[':tensorflow:serving:model_version_loaded{model_name="half",version="3"}'] == "1.0"


def test_metrics_are_where_their_configuration_says(base, tmp_path):
    monitoring = tmp_path / "monitoring"
    for text, found in (('enable: true path: "/m/x"', {"/m/x"}), ("", set())):
        monitoring.write_text(f"prometheus_config {{ {text} }}")
        flag = f"--monitoring_config_file={monitoring}"
        with serving(flag, base=base, rest=True) as server:
            paths = {path for path in (METRICS, "/m/x") if ask(server.rest_port, path)[0] == 200}
            assert paths == found


def test_named_pages_and_hosts_may_ask(base, protocol_server):
    origin = "https://pages.example"
    question = {"Method": "POST", "Headers": "content-type"}

    def preflight(server, origin):
        """Status and allowed origin of the question that a browser asks before a POST of JSON."""
        url = f"http://127.0.0.1:{server.rest_port}/v1/models/m:predict"
        request = urllib.request.Request(url, method="OPTIONS")
        request.add_header("Origin", origin)
        for name, value in question.items():
            request.add_header(f"Access-Control-Request-{name}", value)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, response.headers["Access-Control-Allow-Origin"]
        except urllib.error.HTTPError as error:
            return error.code, error.headers["Access-Control-Allow-Origin"]

    assert preflight(protocol_server, origin) == (405, None)
    flags = f"--rest_api_cors_origins=http://a:80,{origin}", "--rest_api_hosts=api.example"
    with serving(*flags, base=base, rest=True) as server:
        assert preflight(server, origin) == (200, origin)
        assert preflight(server, "https://other.example") == (400, None)
        assert raw(server.rest_port, ["Host: api.example"])[0] in (200, 404)
        assert raw(server.rest_port, ["Host: b.example"])[0] == 400


def test_bodies_in_tiny_chunks_leave_others_their_turns(protocol_server, client):
    """200,000 chunks of a byte on each of four connections, and short requests by gRPC and REST."""
    head = b"POST /v1/models/half:predict HTTP/1.1\r\nHost: localhost\r\n"
    head += b"Transfer-Encoding: chunked\r\n\r\n"
    port, answered = protocol_server.rest_port, []

    def send():
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(head + b"1\r\nx\r\n" * 200_000 + b"0\r\n\r\n")
            answered.append(connection.recv(100))

    threads = [threading.Thread(target=send) for _ in range(4)]
    client.prediction.Predict(tensor_request(dims=[1], string_val=[b"a"]), timeout=60)  # connects
    for thread in threads:
        thread.start()
    for _ in range(2):
        client.prediction.Predict(tensor_request(dims=[1], string_val=[b"a"]), timeout=60)
        assert ask(port, "/v1/models/half:predict", {"instances": [[1.0]]})[0] == 200
    assert answered == []
    for thread in threads:
        thread.join()
    # The body is no JSON; on a machine that is busy, its time may have ended before.
    assert all(answer[8:13] in (b" 400 ", b" 504 ") for answer in answered)


def raw(port, head, body=b'{"instances": ["a"]}'):
    """(status, whether the connection is closed) of a POST with these lines of its head."""
    lines = ["POST /v1/models/half:predict HTTP/1.1", *head, f"Content-Length: {len(body)}"]
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        response = http.client.HTTPResponse(connection)
        response.begin()
        return response.status, response.getheader("connection") == "close"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (["Host: localhost:8501"], 200),
        (["Host: LOCALHOST"], 200),
        (["Host: [::1]:8501"], 200),
        (["Host: rebound.example:8501"], 400),
        (["Host: localhost.rebound.example"], 400),
        (["Host: [::1].rebound.example"], 400),
        (["Host: [::1"], 400),
        (["Host: localhost", "Content-Type: text/plain"], 200),  # as the stock server, and curl
        (["Host: localhost", "Content-Type: text/plain", "Origin: https://foreign.example"], 403),
        (["Host: localhost", "Origin: null"], 403),
        (["Host: localhost:8501", "Origin: http://localhost:8501"], 200),
    ],
)
def test_pages_of_other_sites_cannot_send_requests(protocol_server, head, status):
    body = b'{"instances": [[1.0]]}'
    assert raw(protocol_server.rest_port, head, body)[0] == status


def test_a_length_and_chunks_at_once_close_the_connection(protocol_server):
    head = ["Host: localhost", "Transfer-Encoding: chunked"]
    assert raw(protocol_server.rest_port, head, b"0\r\n\r\n") == (400, True)


def test_a_path_with_a_slash_is_not_redirected_to_the_host_that_was_sent(rest):
    assert rest("/v1/models/half/")[0] == 404


def test_only_trusted_proxies_say_who_a_client_is(base, monkeypatch):
    clients, run = [], Workers.run

    async def recorded(self, job):
        clients.append(job.client[0])
        return await run(self, job)

    monkeypatch.setattr(Workers, "run", recorded)
    for flags in ([], ["--rest_api_trusted_proxies=127.0.0.1"]):
        with serving(*flags, base=base, rest=True) as server:
            forwarded = {"X-Forwarded-For": "192.0.2.7"}
            body = {"instances": ["a"]}
            path = "/v1/models/upper:predict"
            assert ask(server.rest_port, path, body, **forwarded)[0] == 200
    assert clients == ["127.0.0.1", "192.0.2.7"]
