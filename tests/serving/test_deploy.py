"""The deployment files: against their schemas, and against the local server."""

import copy
import importlib
import re
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml
from envoy.config.bootstrap.v3 import bootstrap_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2 as manager_pb2,
)
from envoy.extensions.upstreams.http.v3.http_protocol_options_pb2 import HttpProtocolOptions
from google.protobuf import json_format

from serving.client import Translator
from serving.server.flags import build_parser
from serving.server.model_server import _MOST_STREAMS, _channel_arguments
from tests.serving.conftest import add_version, serving
from tests.serving.test_rest import free_port
from tests.serving.test_server import process  # noqa: F401  (fixture)
from tests.serving.test_versions import eventually, request

DEPLOY = Path(__file__).parents[2] / "serving" / "deploy"


def documents(name):
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def test_the_deployments_configuration_is_what_the_server_takes(saved, tmp_path, stubs):
    add_version(saved / "upper", tmp_path / "en-fr", 1)
    models = tmp_path / "models.config"
    models.write_text((DEPLOY / "models.config").read_text().replace("/models/", f"{tmp_path}/"))
    with serving(
        f"--model_config_file={models}",
        f"--rest_api_port={free_port()}",
        f"--monitoring_config_file={DEPLOY / 'monitoring.config'}",
        "--enable_batching=true",
        f"--batching_parameters_file={DEPLOY / 'batching.config'}",
    ) as server:
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
        arguments = build_parser().parse_args(flags)
        _channel_arguments(arguments.grpc_channel_arguments)


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
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/"""
    pods = [
        documents("kubernetes.yaml")[1]["spec"]["template"]["spec"],
        documents("kubernetes-models.yaml")[0]["spec"],
        documents("kserve.yaml")[0]["spec"],
    ]
    for pod in pods:
        for container in pod["containers"]:
            context = {**pod.get("securityContext", {}), **container["securityContext"]}
            assert context["runAsNonRoot"] is True
            assert context["seccompProfile"] == {"type": "RuntimeDefault"}
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context["readOnlyRootFilesystem"] is True


def strict(**properties):
    return {"type": "object", "properties": properties, "additionalProperties": False}


TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
# Parts of KServe's custom resources (0.21) used here; containers are checked as Kubernetes'.
KSERVE = {
    "ServingRuntime": strict(
        supportedModelFormats={
            "type": "array",
            "items": {
                **strict(name=TEXT, version=TEXT, autoSelect={"type": "boolean"}, priority=NUMBER),
                "required": ["name"],
            },
        },
        protocolVersions={"type": "array", "items": {"enum": ["v1", "v2", "grpc-v1", "grpc-v2"]}},
        containers={"type": "array", "minItems": 1},
    ),
    "InferenceService": strict(
        predictor=strict(
            minReplicas=NUMBER,
            maxReplicas=NUMBER,
            scaleTarget=NUMBER,
            scaleMetric={"enum": ["cpu", "memory", "concurrency", "rps"]},
            model={
                **strict(
                    runtime=TEXT,
                    modelFormat={**strict(name=TEXT, version=TEXT), "required": ["name"]},
                    protocolVersion=TEXT,
                    storageUri=TEXT,
                    resources={"type": "object"},
                ),
                "required": ["modelFormat"],
            },
        )
    ),
}


def test_kserves_files_are_valid():
    runtime, service = documents("kserve.yaml")
    for document in (runtime, service):
        jsonschema.validate(document["spec"], KSERVE[document["kind"]])
    model = service["spec"]["predictor"]["model"]
    assert model["runtime"] == runtime["metadata"]["name"]
    assert model["protocolVersion"] in runtime["spec"]["protocolVersions"]
    container = {**runtime["spec"]["containers"][0], "resources": model["resources"]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x"},
        "spec": {"containers": [container]},
    }
    kubernetes_validate.validate(pod, "1.37", strict=True)
    build_parser().parse_args(container["args"])


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
    manager["request_time_out"] = "1s"
    with pytest.raises(json_format.ParseError):
        envoy(document)


def test_envoy_bounds_streams_and_ends_connections_that_reset_them():
    (document,) = documents("envoy.yaml")
    made = envoy(document)
    (layer,) = made.layered_runtime.layers
    limits = {name: int(value.number_value) for name, value in layer.static_layer.fields.items()}
    assert limits == {
        "overload.premature_reset_total_stream_count": 100,
        "overload.premature_reset_min_stream_lifetime_seconds": 1,
        "http.max_requests_per_io_cycle": 1,
    }
    (manager,) = (
        chain.filters[0].typed_config
        for listener in made.static_resources.listeners
        for chain in listener.filter_chains
        if listener.name == "grpc"
    )
    downstream = manager_pb2.HttpConnectionManager()
    assert manager.Unpack(downstream)
    assert downstream.http2_protocol_options.max_concurrent_streams.value <= 100
    (cluster,) = (c for c in made.static_resources.clusters if c.name == "grpc")
    upstream = HttpProtocolOptions()
    (options,) = cluster.typed_extension_protocol_options.values()
    assert options.Unpack(upstream)
    streams = upstream.explicit_http_config.http2_protocol_options.max_concurrent_streams.value
    assert 0 < streams <= _MOST_STREAMS / 2


# Several servers behind one name


class Names:
    """A DNS server that gives `addresses` for any name."""

    def __init__(self, *addresses):
        self.addresses = list(addresses)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self):
        while True:
            try:
                query, client = self._socket.recvfrom(512)
            except OSError:
                return
            end = query.index(b"\0", 12) + 5
            (kind,) = struct.unpack(">H", query[end - 4 : end - 2])
            found = self.addresses if kind == 1 else []  # IPv4
            record = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 5, 4)
            head = query[:2] + struct.pack(">HHHHH", 0x8180, 1, len(found), 0, 0)
            answers = b"".join(record + socket.inet_aton(address) for address in found)
            self._socket.sendto(head + query[12:end] + answers, client)

    def close(self):
        self._socket.close()


def test_a_server_of_two_that_dies_and_comes_back_fails_no_request(base, process, stubs):  # noqa: F811
    port = free_port()
    names = Names("127.0.0.1", "127.0.0.2")
    mortal = process(port)
    with serving(
        "--host=127.0.0.2", f"--port={port}", "--model_name=upper", f"--model_base_path={base}"
    ) as other:
        counted = other._metrics._metrics[":tensorflow:serving:request_count"].values
        with Translator(f"127.0.0.1:{port}", "upper") as translator:
            translator.wait_ready(120)
        target = f"dns://127.0.0.1:{names.port}/translator.test:{port}"
        with Translator(target, "upper", timeout=30) as translator:

            def shares():
                before = sum(counted.values())
                translator.translate([f"text {number}" for number in range(64)])
                time.sleep(0.5)
                return sum(counted.values()) < before + 2

            eventually(shares)
            for number in range(1000):
                if number == 300:
                    mortal.stop()
                if number == 500:
                    mortal = process(port)
                if number == 700:
                    with Translator(f"127.0.0.1:{port}", "upper") as direct:
                        direct.wait_ready(120)
                assert translator.translate([f"text {number}"])[0].text == f"TEXT {number}"
            eventually(shares)
    names.close()
