"""The guide into production is true of the local server and of the files it names."""

import re
import shlex
import subprocess
from pathlib import Path

import yaml
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from serving.client import Tls, Translator
from tests.serving.conftest import serving

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guides" / "production.md").read_text(encoding="utf-8")


def blocks(kind=""):
    received = re.findall(r"^```(\w*)\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)
    return [block for its, block in received if its == kind]


def test_the_autoscaler_is_the_one_of_the_manifest():
    documents = yaml.safe_load_all((ROOT / "serving/deploy/kubernetes.yaml").read_text())
    (scaler,) = [each for each in documents if each["kind"] == "HorizontalPodAutoscaler"]
    assert "two to eight stock servers" in GUIDE
    assert (scaler["spec"]["minReplicas"], scaler["spec"]["maxReplicas"]) == (2, 8)
    assert "more than 70 % of their processors" in GUIDE
    (metric,) = scaler["spec"]["metrics"]
    assert metric["resource"] == {
        "name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": 70},
    }


def test_a_certificate_made_as_it_says_encrypts(base, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (command,) = [block for block in blocks() if block.startswith("openssl")]
    run = shlex.split(command.replace("\\\n", " "))
    subprocess.run(run, check=True, capture_output=True)
    (write,) = blocks("python")
    exec(compile(write, "production.md", "exec"), {})
    assert Path("ssl.config").stat().st_mode & 0o077 == 0
    with (
        serving("--ssl_config_file=ssl.config", base=base) as server,
        Translator(f"localhost:{server.port}", "upper", tls=Tls("server.pem")) as translator,
    ):
        assert translator.translate(["one"])[0].text == "ONE"


def test_the_canarys_files_are_the_stock_servers():
    (labelled,) = (
        text_format.Parse(block, model_server_config_pb2.ModelServerConfig()).model_config_list
        for block in blocks()
        if "model_config" in block
    )
    assert list(labelled.config[0].model_version_policy.specific.versions) == [1, 2]
    assert dict(labelled.config[0].version_labels) == {"stable": 1, "canary": 2}
