"""The REST interface, asked over HTTP."""

import base64
import gzip
import http.client
import json
import socket

import pytest

from tests.serving.conftest import labelled_models, serving


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def server(saved, tmp_path_factory):
    root = tmp_path_factory.mktemp("rest")
    config = labelled_models(saved, root)
    (root / "monitoring.config").write_text('prometheus_config { enable: true path: "/metrics" }')
    with serving(
        f"--model_config_file={config}",
        f"--rest_api_port={free_port()}",
        f"--monitoring_config_file={root / 'monitoring.config'}",
    ) as server:
        yield server


@pytest.fixture
def ask(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=60)

    def ask(path, body=None, method=None, headers=None):
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        connection.request(method or ("GET" if body is None else "POST"), path, body, headers or {})
        response = connection.getresponse()
        text = response.read().decode("utf-8", "surrogateescape")
        is_json = response.headers["Content-Type"] == "application/json"
        return response.status, json.loads(text) if is_json else text

    yield ask
    connection.close()


def test_rows_with_one_input_and_one_output(ask):
    assert ask("/v1/models/half:predict", {"instances": [[1.0], [6]]}) == (
        200,
        {"predictions": [[2.5], [5.0]]},
    )


def test_columns_with_one_input_and_one_output(ask):
    assert ask("/v1/models/half:predict", {"inputs": [[1.0], [6]]}) == (
        200,
        {"outputs": [[2.5], [5.0]]},
    )
    assert ask("/v1/models/half:predict", {"inputs": {"x": [[1.0]]}})[1] == {"outputs": [[2.5]]}


def test_rows_and_columns_with_several_inputs(ask):
    rows = {"signature_name": "sum", "instances": [{"a": 1, "b": 10}, {"a": 2.0, "b": 20}]}
    assert ask("/v1/models/half:predict", rows) == (200, {"predictions": [11, 22]})
    columns = {"signature_name": "sum", "inputs": {"a": [1, 2], "b": [10, 20]}}
    assert ask("/v1/models/half:predict", columns) == (200, {"outputs": [11, 22]})


def test_several_outputs_are_objects(ask):
    status, answer = ask("/v1/models/upper:predict", {"instances": ["one two", {"b64": "w6k="}]})
    assert (status, len(answer["predictions"])) == (200, 2)
    assert answer["predictions"][0] == {
        "translation": "ONE TWO",
        "score": -1.0,
        "truncated": False,
    }
    assert answer["predictions"][1]["translation"] == "é"
    _, answer = ask("/v1/models/upper:predict", {"inputs": {"text": ["one"]}})
    assert answer["outputs"] == {"translation": ["ONE"], "score": [-0.5], "truncated": [False]}


def test_floats_are_short_and_always_have_a_point(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=60)
    connection.request(
        "POST", "/v1/models/half:predict", b'{"instances": [[-3.6], [2], [1e9], [0.2]]}'
    )
    text = connection.getresponse().read().decode()
    connection.close()
    # Six digits where they give the float32 back, else nine.
    assert "[[0.200000048], [3.0], [5e+08], [2.1]]" in text


@pytest.mark.parametrize("which", ["", "/versions/3", "/labels/stable"])
def test_versions_and_labels_are_in_the_path(ask, which):
    assert ask(f"/v1/models/half{which}:predict", {"instances": [[2]]})[0] == 200
    assert ask(f"/v1/models/half{which}") == (
        200,
        {
            "model_version_status": [
                {
                    "version": "3",
                    "state": "AVAILABLE",
                    "status": {"error_code": "OK", "error_message": ""},
                }
            ]
        },
    )
    status, answer = ask(f"/v1/models/half{which}/metadata")
    assert (status, answer["model_spec"]["version"]) == (200, "3")
    signature = answer["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert signature["inputs"]["x"]["dtype"] == "DT_FLOAT"


def test_classify_and_regress(ask):
    body = {"signature_name": "classify", "examples": [{"x": 1.0}, {"x": [6.0]}]}
    assert ask("/v1/models/half:classify", body) == (
        200,
        {"results": [[["low", 2.5]], [["high", 5.0]]]},
    )
    body = {"signature_name": "regress", "context": {"x": 8.0}, "examples": [{}, {}]}
    assert ask("/v1/models/half:regress", body) == (200, {"results": [6.0, 6.0]})


def test_base64_that_is_no_utf8_goes_in_and_comes_out_as_it_is(ask):
    text = base64.b64encode(b"a\xff").decode()
    _, answer = ask("/v1/models/upper:predict", {"instances": [{"b64": text}]})
    assert answer["predictions"][0]["translation"].encode("utf-8", "surrogateescape") == b"A\xff"


def test_a_gzipped_body_is_read(ask):
    body = gzip.compress(b'{"instances": [[1.0]]}')
    headers = {"Content-Encoding": "gzip"}
    assert ask("/v1/models/half:predict", body, headers=headers)[1] == {"predictions": [[2.5]]}
    assert ask("/v1/models/half:predict", b"x", headers=headers)[0] == 400


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/v1/models/m:predict", {"instances": [1]}, 404, "Servable not found for request: La"),
        (
            "/v1/models/half/versions/7:predict",
            {"instances": [1]},
            404,
            "Servable not found for request: Specific(half, 7)",
        ),
        ("/v1/models/half/labels/x:predict", {"instances": [1]}, 400, "Unrecognized servable ve"),
        ("/v1/models/half/versions/9" + "9" * 30, None, 400, "Failed to convert version"),
        ("/v1/models/m", None, 404, "Could not find any versions of model m"),
        ("/v1/models/half/versions/7", None, 404, "Could not find version 7 of model half"),
        ("/v1/models", None, 400, "Missing model name in request."),
        ("/v1/x", None, 400, "Malformed request: GET /v1/x"),
        ("/v1/models/half:x", {}, 400, "Malformed request: POST /v1/models/half:x"),
        ("/v1/models/half:predict", b"", 400, "JSON Parse error: The document is empty"),
        ("/v1/models/half:predict", b"{", 400, "JSON Parse error: "),
        ("/v1/models/half:predict", b"\xff", 400, "JSON Parse error: "),
        ("/v1/models/half:predict", b"[" * 100_000, 400, "JSON Parse error: "),
        ("/v1/models/half:predict", [1], 400, "Is not object"),
        ("/v1/models/half:predict", {}, 400, "Missing 'inputs' or 'instances' key"),
        ("/v1/models/half:predict", {"inputs": 1, "instances": 1}, 400, "expecting only one of"),
        ("/v1/models/half:predict", {"instances": 1}, 400, "Excepting 'instances' to be an list"),
        ("/v1/models/half:predict", {"instances": []}, 400, "No values in 'instances' array"),
        ("/v1/models/half:predict", {"signature_name": 1}, 400, "must be a string value"),
        (
            "/v1/models/half:predict",
            {"signature_name": "x", "instances": [1]},
            400,
            'Serving signature name: "x" not found in signature def',
        ),
        (
            "/v1/models/half:predict",
            {"instances": ["a"]},
            400,
            "Type: String is not of expected type: float",
        ),
        ("/v1/models/half:predict", {"instances": [True]}, 400, "Type: True is not of expected"),
        ("/v1/models/half:predict", {"instances": [[1], [1, 2]]}, 400, "Expecting shape [1] but"),
        ("/v1/models/half:predict", {"instances": [[1, [2]]]}, 400, "unexpected level: 1"),
        ("/v1/models/half:predict", {"instances": [[[1], 2]]}, 400, "found at incorrect level: 2"),
        ("/v1/models/half:predict", {"inputs": [[1], [1, 2]]}, 400, "unexpected size: 2 at level"),
        ("/v1/models/half:predict", {"instances": [{"z": 1}]}, 400, "does not have named input: z"),
        ("/v1/models/half:predict", {"instances": [{"x": [1]}, 1]}, 400, "Expecting object but"),
        ("/v1/models/half:predict", {"instances": [1, {"x": 1}]}, 400, "Expecting value/list but"),
        ("/v1/models/half:predict", {"inputs": {"z": [1]}}, 400, "Missing named input: x"),
        ("/v1/models/half:predict", {"inputs": [2**24]}, 400, "without loss of precision"),
        (
            "/v1/models/half:predict",
            {"signature_name": "sum", "instances": [1]},
            400,
            "instances is a plain list, but expecting list of objects",
        ),
        (
            "/v1/models/half:predict",
            {"signature_name": "sum", "inputs": [1]},
            400,
            "inputs is a plain value/list, but expecting an object",
        ),
        (
            "/v1/models/half:predict",
            {"signature_name": "sum", "instances": [{"a": 1}]},
            400,
            "must only have keys: a,b",
        ),
        (
            "/v1/models/half:predict",
            {"signature_name": "sum", "instances": [{"a": 1, "b": 1.5}]},
            400,
            "is not of expected type: int64",
        ),
        ("/v1/models/upper:predict", {"instances": [{"b64": "?"}]}, 400, "Unable to base64 decode"),
        ("/v1/models/upper:predict", {"instances": [["a"]]}, 400, "Shape of tensor"),
        ("/v1/models/half:classify", {}, 400, "key 'examples' is expected and was not found"),
        ("/v1/models/half:classify", {"examples": []}, 400, "'examples' value is an empty array"),
        ("/v1/models/half:classify", {"examples": [1]}, 400, "Example must be JSON object"),
        ("/v1/models/half:classify", {"examples": [{"x": None}]}, 400, "unexpected JSON type: Nu"),
        ("/v1/models/half:classify", {"examples": [{"x": ["a", 1]}]}, 400, "Unexpected element ty"),
        (
            "/v1/models/half:regress",
            {"signature_name": "x", "examples": [{"x": 1.0}]},
            400,
            "No signature was found with the name: x",
        ),
    ],
)
def test_a_bad_request_is_an_error_that_says_why(ask, path, body, status, message):
    found, answer = ask(path, body)
    assert found == status
    assert message in answer["error"]


def test_other_paths_are_not_found(ask):
    assert ask("/")[0] == 404
    assert ask("/monitoring/prometheus/metrics")[0] == 404


def test_requests_are_counted_as_prometheus_text(ask):
    ask("/v1/models/half:predict", {"instances": [[1.0]]})
    ask("/v1/models/none:predict", {"instances": [[1.0]]})
    status, text = ask("/metrics")
    assert status == 200
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    counted = ':tensorflow:serving:request_count{model_name="half",status="OK"}'
    assert int(lines[counted]) >= 1
    latency = ':tensorflow:serving:request_latency_{}{{model_name="half",API="Predict",'
    latency += 'entrypoint="REST",status="OK"{}}}'
    assert lines[latency.format("bucket", ',le="+Inf"')] == lines[latency.format("count", "")]
    assert float(lines[latency.format("sum", "")]) > 0


def test_a_request_is_read_and_answered_by_one_version(server, ask, monkeypatch):
    acquire, seen = server._manager.acquire, []

    def spy(spec):
        seen.append(spec.name)
        return acquire(spec)

    monkeypatch.setattr(server._manager, "acquire", spy)
    assert ask("/v1/models/half:predict", {"instances": [[1.0]]})[0] == 200
    assert ask("/v1/models/half/metadata")[0] == 200
    assert seen == ["half", "half"]
