"""The executions of a model: functions from sources to an answer, a dict, for each of them.

`served` exports runs in both forms and serves them over gRPC and REST. A kind of source asks each
execution in its own way, and `assert_alike` compares what they answer.
"""

import contextlib
import json
import math
import urllib.error
import urllib.request

from hypothesis import HealthCheck, Phase, settings

from serving.batch._job import BatchJob, answer_input, load_model, start
from serving.export._version import export
from tests.serving.conftest import models_config, serving
from training.runs.run import load_run

FORMS = ("savedmodel", "onnx")


def examples(count):
    """Draw so many inputs, the same in every run; none is made smaller, which takes minutes."""
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    return settings(
        max_examples=count, derandomize=True, deadline=None, database=None,
        suppress_health_check=checks, phases=[Phase.explicit, Phase.generate],
    )  # fmt: skip


@contextlib.contextmanager
def served(runs, folder, **options):
    """Export runs, paths by name, in both forms; serve them as `NAME-FORM`.

    Yields the server, and the folder of each version by name and form.
    """
    versions = {
        # A tokenizer of tensorflow_text may end with functions of an export before: each is new.
        (name, form): export([load_run(run)], folder / f"{name}-{form}", form=form, **options)
        for name, run in runs.items()
        for form in FORMS
    }
    bases = {path.parent.name: path.parent for path in versions.values()}
    config = models_config(folder / "models.config", bases)
    with serving(f"--model_config_file={config}", rest=True) as server:
        yield server, versions


def rest(server, model, signature, inputs):
    """Return the outputs of a REST request by name, or {"error": …}."""
    body = json.dumps({"signature_name": signature, "inputs": inputs}).encode()
    url = f"http://127.0.0.1:{server.rest_port}/v1/models/{model}:predict"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=60) as answer:
            return json.loads(answer.read())["outputs"]
    except urllib.error.HTTPError as error:
        return json.loads(error.read())


def batch(version, kind, content, folder, name):
    """Return the records that `serving.batch` writes for a file of a name and content."""
    job = BatchJob(version, folder / f"out-{version.parent.name}", kind, batch_size=3)
    start(job)
    model = _BATCHES[version] if version in _BATCHES else load_model(job, 1)
    _BATCHES[version] = model
    (folder / name).write_bytes(content)
    answer_input(job, model, [folder / name])
    (output,) = job.output.glob("*.jsonl")
    records = [json.loads(line) for line in output.read_bytes().splitlines()]
    output.unlink()
    return records


_BATCHES = {}


def rows_of(outputs, count):
    """Return an answer for each of so many sources of outputs by name."""
    return [{name: values[row] for name, values in outputs.items()} for row in range(count)]


def assert_alike(answers, sources, tolerance=1e-4):
    """Assert that executions answer as the first of them, in all fields that both have."""
    (first, wanted), *others = answers.items()
    for name, received in others:
        assert len(received) == len(wanted), f"{name}: {len(received)} answers"
        for source, one, other in zip(sources, received, wanted, strict=True):
            for field in one.keys() & other.keys():
                same = _is_alike(one[field], other[field], tolerance)
                assert same, (
                    f"{source!r}: {field} {one[field]!r} of {name}, {other[field]!r} of {first}"
                )


def _is_alike(one, other, tolerance):
    if isinstance(one, list | tuple):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(_is_alike(a, b, tolerance) for a, b in pairs)
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance)
    return one == other
