"""The files that launch a training on many machines: against their schemas, and against it."""

import copy
import os
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from kubeflow_trainer_api.models import (
    jobset_v1alpha2_job_set,
    trainer_v1alpha1_train_job,
    trainer_v1alpha1_training_runtime,
)

from training.fit.distributed import Asked, asked_for

DEPLOY = Path(__file__).parents[2] / "training" / "deploy"
# Models of the custom resources' schemas, as Kubeflow publishes them; JobSet's are among them.
KINDS = {
    "JobSet": jobset_v1alpha2_job_set.JobsetV1alpha2JobSet,
    "TrainJob": trainer_v1alpha1_train_job.TrainerV1alpha1TrainJob,
    "TrainingRuntime": trainer_v1alpha1_training_runtime.TrainerV1alpha1TrainingRuntime,
}
COMMAND = ["python", "-m", "training.train_arrays", "/runs/en-fr"]


def documents(name):
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


JOBSET, (RUNTIME, TRAINJOB) = documents("jobset.yaml")[0], documents("trainjob.yaml")


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


@pytest.mark.parametrize("document", [JOBSET, RUNTIME, TRAINJOB], ids=lambda it: it["kind"])
def test_custom_resources_are_valid(document):
    assert difference(document) == []


def test_what_is_misspelt_would_be_found():
    wrong = copy.deepcopy(JOBSET)
    wrong["spec"]["failurePolicy"] = {"maxRestart": 20}
    assert difference(wrong) == [".spec.failurePolicy.maxRestart"]
    wrong = copy.deepcopy(TRAINJOB)
    wrong["spec"]["trainer"]["numNodes"] = "2"
    with pytest.raises(ValueError, match="numNodes"):
        difference(wrong)


def job_spec(document):
    spec = document["spec"]["template"]["spec"] if document is RUNTIME else document["spec"]
    (job,) = spec["replicatedJobs"]
    assert spec["failurePolicy"]["maxRestarts"] > 0
    return job["template"]["spec"]


@pytest.mark.parametrize("document", [JOBSET, RUNTIME], ids=lambda it: it["kind"])
def test_the_jobs_in_them_are_valid_and_keep_to_the_restricted_standard(document):
    spec = job_spec(document)
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


def test_the_pods_of_the_job_set_find_one_another():
    spec = job_spec(JOBSET)
    (container,) = spec["template"]["spec"]["containers"]
    assert container["command"] == COMMAND
    environment = {variable["name"]: variable.get("value", "1") for variable in container["env"]}
    name = JOBSET["metadata"]["name"]
    assert asked_for(environment) == Asked(f"{name}-node-0-0.{name}:29500", 2, 1)
    assert container["ports"][0]["containerPort"] == 29500
    assert spec["completions"] == spec["parallelism"] == 2


def test_the_train_job_runs_the_command_in_its_runtime():
    assert TRAINJOB["spec"]["trainer"]["command"] == COMMAND
    reference = TRAINJOB["spec"]["runtimeRef"]
    assert reference["name"] == RUNTIME["metadata"]["name"]
    assert reference["kind"] == RUNTIME["kind"]
    ancestor = RUNTIME["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["metadata"]
    assert ancestor["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}


def slurm(folder, run, **programs):
    """Run the Slurm script where these programs stand in for Slurm's and for Python."""
    for name, text in programs.items():
        (folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / name).chmod(0o755)
    environment = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "SLURM_JOB_NODELIST": "node[07-08]",
        "SLURM_JOB_ID": "1234567",
        "SLURM_NTASKS": "2",
    }
    command = ["bash", str(DEPLOY / "slurm.sh"), run]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def test_the_slurm_script_starts_a_process_a_task_and_again_what_fails(tmp_path):
    srun = """
    [ "$1" = --kill-on-bad-exit=1 ] || exit 9
    shift
    echo start >> STARTS
    for n in 0 1; do SLURM_PROCID=$n "$@"; done
    [ $(wc -l < STARTS) = 2 ]
    """.replace("STARTS", str(tmp_path / "starts"))
    names = [name for name in os.environ if name.startswith("KERAS_DISTRIBUTION")]
    assert not names
    python = 'env | grep ^KERAS_ | sort; echo "$@"'
    nodes = '[ "$*" = "show hostnames node[07-08]" ] && printf "node07\\nnode08\\n"'
    done = slurm(tmp_path, "my run", scontrol=nodes, srun=srun, python=python)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2 * 2 * 5  # started twice, two processes, five lines each
    environment = dict(line.split("=", 1) for line in lines[5:9])
    assert environment["KERAS_BACKEND"] == "jax"
    assert lines[9] == "-m training.train_arrays my run"
    assert asked_for(environment) == Asked("node07:24567", 2, 1)


def test_the_slurm_script_ends_when_nothing_helps(tmp_path):
    done = slurm(tmp_path, "run", scontrol="echo node07", srun="exit 1")
    assert done.returncode == 1
    assert done.stderr == "error: run was started five times and did not end\n"
