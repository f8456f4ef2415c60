"""The executions of a model: functions from sources to an answer, a dict, for each of them.

`served` exports runs in both forms and serves them over gRPC and REST. A kind of source asks each
execution in its own way, and `assert_alike` compares what they answer.
"""

import asyncio
import contextlib
import json
import math
import urllib.error
import urllib.request

from hypothesis import HealthCheck, Phase, settings

from serving.api._errors import ServingError
from serving.batch._job import BatchJob, answer_input, load_model, start
from serving.export._version import export
from serving.page._app import BadRequestError
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


def refusable(answer):
    """Return a function of a source: its answer, or that it is refused."""

    def ask(source):
        try:
            return {**answer(source), "refused": False}
        except (ValueError, ServingError, BadRequestError):
            return {"refused": True}

    return ask


def rest(server, model, signature, inputs):
    """Return the first row of the outputs of a REST request; raises its error as ValueError."""
    body = json.dumps({"signature_name": signature, "inputs": inputs}).encode()
    url = f"http://127.0.0.1:{server.rest_port}/v1/models/{model}:predict"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=60) as answer:
            outputs = json.loads(answer.read())["outputs"]
    except urllib.error.HTTPError as error:
        raise ValueError(json.loads(error.read())["error"]) from None
    return {name: values[0] for name, values in outputs.items()}


def in_page(client, server, model, ask):
    """Return a function of a source: what the page's `ask(client, source)` answers."""

    async def run(source):
        async with client(f"localhost:{server.port}", model) as made:
            return await ask(made, source)

    return lambda source: asyncio.run(run(source))


def batch(version, kind, content, folder, name):
    """Return the records that `serving.batch` writes for a file; raise a single one's error."""
    job = BatchJob(version, folder / f"out-{version.parent.name}", kind, batch_size=3)
    start(job)
    model = _BATCHES[version] if version in _BATCHES else load_model(job, 1)
    _BATCHES[version] = model
    (folder / name).write_bytes(content)
    answer_input(job, model, [folder / name])
    (output,) = job.output.glob("*.jsonl")
    records = [json.loads(line) for line in output.read_bytes().splitlines()]
    output.unlink()
    if len(records) == 1 and "error" in records[0]:
        raise ValueError(records[0]["error"])
    return records


_BATCHES = {}


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
