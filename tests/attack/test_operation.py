"""Things that an operator sees and decides: the log, gauges, traces, reloads, certificates."""

import json
import logging
import re
import shutil

import grpc
import pytest

from serving.client import Tls, Translator
from tests.attack.conftest import add_version, ask, serving
from tests.serving.conftest import error_of, ssl_config
from tests.serving.test_rest import free_port
from tests.serving.test_versions import config, eventually, reload, request, served

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.INFO)
    return caplog


def logged(caplog):
    return [r.getMessage() for r in caplog.records if r.name == "serving.requests"]


@pytest.mark.parametrize("form", ["json", "text", "off"])
def test_each_request_is_a_line_of_the_log(base, stubs, log, form):
    flags = ["--model_name=upper", f"--model_base_path={base}", f"--rest_api_port={free_port()}"]
    with serving(*flags, f"--request_log={form}", "--max_request_rows=5") as server:
        client = stubs(f"localhost:{server.port}")
        metadata = [("x-request-id", "my-id-7")]
        client.prediction.Predict(request(), metadata=metadata)
        error_of(client.prediction.Predict, request('no\n"such"' + "x" * 1000))
        ask(server.rest_port, "/v1/models/upper:predict", {"instances": ["a"] * 3})
        ask(server.rest_port, "/v1/models/upper:predict", {"instances": ["a"] * 6})
    lines = logged(log)
    if form == "off":
        assert lines == []
    elif form == "text":
        assert re.fullmatch(
            'id="my-id-7" entrypoint="GRPC" method="Predict" model="upper" version=1 status="OK" '
            r"rows=1 milliseconds=[\d.]+",
            lines[0],
        )
        assert all("\n" not in line for line in lines)
    else:
        first, second, third, fourth = map(json.loads, lines)
        assert first.pop("milliseconds") > 0
        assert first == {
            "id": "my-id-7",
            "entrypoint": "GRPC",
            "method": "Predict",
            "model": "upper",
            "version": 1,
            "status": "OK",
            "rows": 1,
        }
        assert (second["status"], second["version"], len(second["model"])) == (
            "NOT_FOUND",
            None,
            128,
        )
        assert (third["entrypoint"], third["status"], third["rows"]) == ("REST", "OK", 3)
        assert fourth["status"] == "INVALID_ARGUMENT"
        assert len({one["id"] for one in (first, second, third, fourth)}) == 4


def test_trace_context_comes_back(base, stubs, log):
    flags = ["--model_name=upper", f"--model_base_path={base}", f"--rest_api_port={free_port()}"]
    with serving(*flags, "--request_log=json") as server:
        client = stubs(f"localhost:{server.port}")
        metadata = [("traceparent", PARENT), ("tracestate", "vendor=1")]
        _, call = client.prediction.Predict.with_call(request(), metadata=metadata)
        back = dict(call.initial_metadata())
        assert re.fullmatch(rf"00-{TRACE}-[0-9a-f]{{16}}-01", back["traceparent"])
        assert back["traceparent"] != PARENT
        assert back["tracestate"] == "vendor=1"
        for bad in ("x", PARENT.upper(), f"00-{'0' * 32}-00f067aa0ba902b7-01"):
            metadata = [("traceparent", bad), ("x-request-id", "a b" * 99)]
            _, call = client.prediction.Predict.with_call(request(), metadata=metadata)
            back = dict(call.initial_metadata())
            assert re.fullmatch("[0-9a-f]{32}", back["x-request-id"])
            assert "traceparent" not in back
        body = {"instances": ["a"]}
        ask(server.rest_port, "/v1/models/upper:predict", body, {"traceparent": PARENT})
    ids = [json.loads(line)["id"] for line in logged(log)]
    assert (ids[0], ids[-1]) == (TRACE, TRACE)


def test_loaded_versions_and_load_errors_are_gauges(base, saved, tmp_path, stubs):
    (tmp_path / "monitoring.config").write_text("prometheus_config { enable: true }")
    with serving(
        *("--model_name=upper", f"--model_base_path={base}", f"--rest_api_port={free_port()}"),
        f"--monitoring_config_file={tmp_path / 'monitoring.config'}",
        "--file_system_poll_wait_seconds=0",
    ) as server:
        client = stubs(f"localhost:{server.port}")

        def page():
            server._manager.scan()
            return ask(server.rest_port, "/monitoring/prometheus/metrics")[1]

        loaded = ':tensorflow:serving:model_version_loaded{{model_name="upper",version="{}"}} 1'
        assert loaded.format(1) in page()
        add_version(saved / "upper2", base, 2)
        eventually(lambda: loaded.format(2) in page())
        assert served(client) == 2
        assert loaded.format(1) not in page()
        (base / "3").mkdir()
        (base / "3" / "saved_model.pb").mkdir()
        error = ':tensorflow:serving:model_last_load_error_time{model_name="upper",version="3"} 1'
        eventually(lambda: error in page())


@pytest.mark.parametrize("allowed", [True, False])
def test_reloads_are_logged_and_can_be_refused(base, tmp_path, stubs, log, allowed):
    file = tmp_path / "models.config"
    file.write_text(config(("upper", base, "latest {}", {})))
    flag = f"--enable_reload_config={str(allowed).lower()}"
    with serving(f"--model_config_file={file}", flag) as server:
        client = stubs(f"localhost:{server.port}")
        if allowed:
            reload(client, ("upper", base, "all {}", {}))
        else:
            code, _ = error_of(reload, client, ("upper", base, "all {}", {}))
            assert code == grpc.StatusCode.PERMISSION_DENIED
        assert served(client) == 1
    (line,) = [r.getMessage() for r in log.records if "ReloadConfig" in r.getMessage()]
    assert "ipv" in line
    assert ("refused" in line) != allowed


def test_certificates_are_read_again_when_they_change(base, tmp_path, certificates, log):
    path = ssl_config(tmp_path / "ssl.config", certificates)
    flags = ["--model_name=upper", f"--model_base_path={base}", f"--ssl_config_file={path}"]

    def works(server, authority):
        try:
            with Translator(
                f"localhost:{server.port}",
                "upper",
                tls=Tls(certificates / authority),
                retries=0,
                timeout=30,
            ) as translator:
                return translator.translate(["one"])[0].text == "ONE"
        except Exception:
            return False

    with serving(*flags) as server:
        assert works(server, "ca.pem")
        assert not works(server, "stranger.pem")
        good = path.read_text()
        path.write_text("server_key: 'x' server_cert: 'y'")
        assert works(server, "ca.pem")
        assert "the certificates stay" in log.text
        # The stranger becomes the authority: its certificate serves itself.
        other = tmp_path / "other"
        shutil.copytree(certificates, other)
        shutil.copy(certificates / "stranger-server.pem", other / "server.pem")
        shutil.copy(certificates / "stranger-server.key", other / "server.key")
        path.write_text(ssl_config(tmp_path / "new.config", other).read_text())
        assert works(server, "stranger.pem")
        assert not works(server, "ca.pem")
        path.write_text(good)
        assert works(server, "ca.pem")
