"""The files that launch a training, on many machines or in a container, against their schemas."""

import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from kubeflow_trainer_api.models import TrainerV1alpha1TrainingRuntime, TrainerV1alpha1TrainJob

from training.command._workers import Worker

DEPLOY = Path(__file__).parents[2] / "training" / "deploy"
# Models of the custom resources' schemas, as Kubeflow publishes them.
KINDS = {"TrainJob": TrainerV1alpha1TrainJob, "TrainingRuntime": TrainerV1alpha1TrainingRuntime}


def documents(name):
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


RUNTIME, *TRAINJOBS = documents("trainjob.yaml")


@pytest.mark.parametrize("document", [RUNTIME, *TRAINJOBS], ids=lambda it: it["metadata"]["name"])
def test_custom_resources_are_valid(document):
    """A schema's model keeps the keys and values that the schema knows."""
    assert KINDS[document["kind"]].from_dict(document).to_dict() == document


def assert_restricted(pod):
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/"""
    for container in pod["containers"]:
        context = {**pod.get("securityContext", {}), **container["securityContext"]}
        assert context["runAsNonRoot"] is True
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["readOnlyRootFilesystem"] is True


def test_the_job_in_it_is_valid_and_keeps_to_the_restricted_standard():
    template = RUNTIME["spec"]["template"]["spec"]
    (job,) = template["replicatedJobs"]
    assert template["failurePolicy"]["maxRestarts"] > 0
    spec = job["template"]["spec"]
    made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": spec}
    for release in ("1.27", "1.37"):
        kubernetes_validate.validate(made, release, strict=True)
    pod = spec["template"]["spec"]
    assert pod["restartPolicy"] == "Never"  # one that came back alone would find nobody
    assert spec["backoffLimit"] == 0
    assert_restricted(pod)


def variables(container, fields):
    """The environment of a container, as Kubernetes sets it: $(NAME) is an earlier variable."""
    found = {}
    for each in container["env"]:
        if "valueFrom" in each:
            found[each["name"]] = fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
        else:
            value = re.sub(r"\$\((\w+)\)", lambda name: found[name[1]], each["value"])
            found[each["name"]] = value
    return found


@pytest.mark.parametrize("job", TRAINJOBS, ids=lambda it: it["metadata"]["name"])
def test_each_pod_finds_the_others(job, monkeypatch):
    """Names of pods: https://jobset.sigs.k8s.io/docs/concepts/, of JAX: Trainer's plugin jax."""
    template = RUNTIME["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]
    (container,) = template["spec"]["template"]["spec"]["containers"]
    name, count = job["metadata"]["name"], job["spec"]["trainer"]["numNodes"]
    (backend,) = (each["value"] for each in job["spec"]["trainer"]["env"])
    assert RUNTIME["spec"]["mlPolicy"] == {"numNodes": count, "jax": {}}
    monkeypatch.setenv("JAX_NUM_PROCESSES", str(count))
    pods = tuple(f"{name}-node-0-{index}.{name}:29500" for index in range(count))
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", pods[0].partition(":")[0])
    monkeypatch.setenv("JAX_COORDINATOR_PORT", "29500")
    for index in range(count):
        fields = {
            "metadata.labels['jobset.sigs.k8s.io/jobset-name']": name,
            "metadata.annotations['batch.kubernetes.io/job-completion-index']": str(index),
        }
        monkeypatch.setenv("JAX_PROCESS_ID", str(index))
        for key, value in variables(container, fields).items():
            monkeypatch.setenv(key, value)
        expected = Worker(index, count, pods if backend == "tensorflow" else pods[:1])
        assert Worker.here(backend) == expected


def test_what_the_image_for_a_gpu_copies_can_be_installed(tmp_path):
    """No Docker is needed: its image of TensorFlow is not looked at but for the version."""
    text = (DEPLOY / "Dockerfile").read_text()
    installed = metadata.version("tensorflow").rpartition(".")[0]
    assert re.search(rf"^FROM tensorflow/tensorflow:{installed}\.\d+-gpu$", text, re.M)
    for line in re.findall(r"^COPY (.*)", text, re.M):
        *sources, target = line.split()
        target = tmp_path / target.strip("/")
        for source in (DEPLOY.parents[1] / name for name in sources):
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                target.mkdir(exist_ok=True)
                shutil.copy(source, target)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "-w", tmp_path, tmp_path / "source"], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        (scripts,) = (name for name in file.namelist() if name.endswith("entry_points.txt"))
        assert re.findall(r'ENTRYPOINT \["(.*)"\]', text)[0] in file.read(scripts).decode()
