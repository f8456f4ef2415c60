"""The guide into production is true of the local server and of the files it names."""

import re
import shlex
import subprocess
from pathlib import Path

import yaml

from serving.client import ServingError, Tls, Translator
from tests.serving.conftest import add_version, serving
from tests.serving.test_versions import eventually

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guides" / "production.md").read_text(encoding="utf-8")


def blocks(kind=""):
    found = re.findall(r"^```(\w*)\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)
    return [block for its, block in found if its == kind]


def answers(server, word, **which):
    with Translator(f"localhost:{server.port}", "en-fr", **which) as translator:
        return translator.translate([word])[0].text


def test_the_autoscaler_is_the_one_of_the_manifest():
    (shown,) = map(yaml.safe_load, blocks("yaml"))
    documents = yaml.safe_load_all((ROOT / "serving/deploy/kubernetes.yaml").read_text())
    (scaler,) = [one for one in documents if one["kind"] == "HorizontalPodAutoscaler"]
    assert shown.items() <= scaler["spec"].items()


def test_a_certificate_made_as_it_says_encrypts(base, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (command,) = [block for block in blocks() if block.startswith("openssl")]
    run = shlex.split(command.replace("\\\n", " "))
    subprocess.run(run, check=True, capture_output=True)
    (write,) = blocks("python")
    exec(compile(write, "production.md", "exec"), {})
    assert Path("ssl.config").stat().st_mode & 0o077 == 0
    with serving(
        f"--model_base_path={base}", "--model_name=en-fr", "--ssl_config_file=ssl.config"
    ) as server:
        assert answers(server, "one", tls=Tls("server.pem")) == "ONE"


def test_a_canary_goes_as_it_says(saved, tmp_path):
    for version, name in ((1, "upper"), (2, "upper2")):
        add_version(saved / name, tmp_path / "en-fr", version)
    both, labelled = (
        block.replace("/models/", f"{tmp_path}/") for block in blocks() if "model_config" in block
    )
    file = tmp_path / "models.config"
    file.write_text(both)
    with serving(
        f"--model_config_file={file}", "--model_config_file_poll_wait_seconds=1"
    ) as server:
        assert answers(server, "one", version=1) == "ONE"
        assert answers(server, "one", version=2) == "ONE!"
        file.write_text(labelled)

        def given():
            try:
                return answers(server, "one", label="canary", retries=0) == "ONE!"
            except ServingError:
                return False

        eventually(given)
        assert answers(server, "one", label="stable") == "ONE"
