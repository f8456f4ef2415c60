"""The file that launches a training on many machines: against its schemas, and against it."""

from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from kubeflow_trainer_api.models import (
    trainer_v1alpha1_train_job,
    trainer_v1alpha1_training_runtime,
)

DEPLOY = Path(__file__).parents[2] / "training" / "deploy"
# Models of the custom resources' schemas, as Kubeflow publishes them.
KINDS = {
    "TrainJob": trainer_v1alpha1_train_job.TrainerV1alpha1TrainJob,
    "TrainingRuntime": trainer_v1alpha1_training_runtime.TrainerV1alpha1TrainingRuntime,
}


def documents(name):
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


RUNTIME, TRAINJOB = documents("trainjob.yaml")


def difference(document):
    """Return the parts of a document that its schema does not know, or takes for something else."""
    known = KINDS[document["kind"]].from_dict(document).to_dict()
    return lost(document, known)


def lost(wanted, found, path=""):
    if isinstance(wanted, dict):
        found = found if isinstance(found, dict) else {}
        return [p for key in wanted for p in lost(wanted[key], found.get(key), f"{path}.{key}")]
    if isinstance(wanted, list):
        found = [*(found or []), *[None] * len(wanted)]
        return [p for i, part in enumerate(wanted) for p in lost(part, found[i], f"{path}[{i}]")]
    return [] if wanted == found else [path]


@pytest.mark.parametrize("document", [RUNTIME, TRAINJOB], ids=lambda it: it["kind"])
def test_custom_resources_are_valid(document):
    assert difference(document) == []


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
    for container in pod["containers"]:
        context = {**pod["securityContext"], **container["securityContext"]}
        assert context["runAsNonRoot"] is True
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["readOnlyRootFilesystem"] is True
