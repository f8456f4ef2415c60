"""The deployment files: against their schemas, and against the local server."""

import copy
import importlib
import re
import shutil
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from envoy.config.bootstrap.v3 import bootstrap_pb2
from google.protobuf import json_format

from tests.serving.conftest import add_version, serving
from tests.serving.test_versions import request
from tests.training.test_deploy import assert_restricted

STOCK_FLAGS = {  # of tensorflow_model_server 2.20, those that the files use
    *("--port", "--rest_api_port", "--model_config_file", "--model_config_file_poll_wait_seconds"),
    *("--monitoring_config_file", "--enable_batching", "--batching_parameters_file"),
    "--grpc_channel_arguments",
}
DEPLOY = Path(__file__).parents[2] / "serving" / "deploy"


def documents(name):
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def test_the_deployments_configuration_is_what_the_server_takes(saved, tmp_path, stubs):
    add_version(saved / "plain", tmp_path / "en-fr", 1)
    models = tmp_path / "models.config"
    models.write_text((DEPLOY / "models.config").read_text().replace("/models/", f"{tmp_path}/"))
    flags = f"--model_config_file={models}", "--enable_batching=true"
    parameters = f"--batching_parameters_file={DEPLOY / 'batching.config'}"
    with serving(*flags, parameters, rest=True) as server:
        client = stubs(f"localhost:{server.port}")
        made = request("en-fr")
        assert client.prediction.Predict(made).outputs["translation"].string_val == [b"ONE"]
        # The health check of the compose file and the readiness probe of the manifest.
        for file in ("compose.yaml", "kubernetes.yaml"):
            script = re.search(
                r">-\n((?: {10,}.*(?:\n|$))+?)(?=\s*(?:interval|periodS))",
                (DEPLOY / file).read_text(),
            )[1]
            script = " ".join(script.split("\n")).replace("/8501", f"/{server.rest_port}")
            run = ["bash", "-c", script]
            assert subprocess.run(run, capture_output=True, timeout=10).returncode == 0
            run = ["bash", "-c", script.replace("en-fr", "none")]
            assert subprocess.run(run, capture_output=True, timeout=10).returncode != 0


def test_the_flags_of_the_deployments_exist():
    for file, count in (("compose.yaml", 7), ("kubernetes.yaml", 8)):
        flags = re.findall(r"^\s+- (--\S+)$", (DEPLOY / file).read_text(), re.MULTILINE)
        assert len(flags) == count
        assert {flag.partition("=")[0] for flag in flags} <= STOCK_FLAGS


@pytest.mark.parametrize("release", ["1.27", "1.37"])
def test_manifests_are_valid(release):
    made = [*documents("kubernetes.yaml"), *documents("kubernetes-models.yaml")]
    assert len(made) == 7
    for document in made:
        kubernetes_validate.validate(document, release, strict=True)
    wrong = copy.deepcopy(made[1])
    wrong["spec"]["template"]["spec"]["containers"][0]["livenessProb"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, release, strict=True)


def test_pods_keep_to_the_restricted_standard():
    assert_restricted(documents("kubernetes.yaml")[1]["spec"]["template"]["spec"])
    assert_restricted(documents("kubernetes-models.yaml")[0]["spec"])


def envoy(document):
    """An Envoy bootstrap; raises ParseError where a field is not of Envoy's API."""
    for module in (
        "filters.network.http_connection_manager.v3.http_connection_manager_pb2",
        "filters.http.router.v3.router_pb2",
        "filters.http.buffer.v3.buffer_pb2",
        "filters.http.local_ratelimit.v3.local_rate_limit_pb2",
        "filters.http.rbac.v3.rbac_pb2",
        "upstreams.http.v3.http_protocol_options_pb2",
        "resource_monitors.downstream_connections.v3.downstream_connections_pb2",
        "resource_monitors.fixed_heap.v3.fixed_heap_pb2",
    ):
        importlib.import_module(f"envoy.extensions.{module}")
    return json_format.ParseDict(document, bootstrap_pb2.Bootstrap())


def test_envoys_limits_are_valid():
    (document,) = documents("envoy.yaml")
    made = envoy(document)
    names = {cluster.name for cluster in made.static_resources.clusters}
    listeners = document["static_resources"]["listeners"]
    assert {listener["name"] for listener in listeners} == names == {"grpc", "rest"}
    manager = listeners[0]["filter_chains"][0]["filters"][0]["typed_config"]
    assert 0 < manager["http2_protocol_options"]["max_concurrent_streams"] <= 100
    layer = made.layered_runtime.layers[0].static_layer.fields
    reset = "overload.premature_reset_total_stream_count"
    assert 0 < layer[reset].number_value <= 100  # of HTTP/2's rapid reset
    manager["request_time_out"] = "1s"
    with pytest.raises(json_format.ParseError):
        envoy(document)


def test_the_stock_server_has_one_version_everywhere():
    (image,) = re.findall(r"image: (\S+)", (DEPLOY / "compose.yaml").read_text())
    root, named = DEPLOY.parents[1], set()
    for pattern in (".github/**/*.yml", "docs/**/*.md", "serving/deploy/*", "Makefile"):
        for path in filter(Path.is_file, root.glob(pattern)):
            named |= {*re.findall(r"tensorflow/serving:[\d.]+\d", path.read_text())}
    assert named == {image}


@pytest.mark.parametrize("target", ["page", "verify-stock"])
def test_make_finds_the_newest_export_that_serves(tmp_path, target):
    """Of both forms, and of one."""
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    shutil.copy(DEPLOY.parents[1] / "Makefile", tmp_path)
    (tmp_path / "setup.py").touch()
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    (tmp_path / ".venv" / "installed").touch()
    for version, file in (("a/1", "saved_model.pb"), ("a/2", "manifest.json")):
        (tmp_path / "models" / version).mkdir(parents=True)
        (tmp_path / "models" / version / file).touch()
    done = subprocess.run(
        ["make", "--no-print-directory", target], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    if target == "page":
        assert "--manifest models/a/2/manifest.json\n" in done.stdout
    else:
        assert done.stdout.split() == (
            ["-m", "serving.check", "models/a/1", "--model", "a", "--against", "localhost:8500"]
        )
