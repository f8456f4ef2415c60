"""Runs a job that answers inputs, in this process or in Ray Data workers, local or on a cluster."""

from __future__ import annotations

import hashlib
import json
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

from serving.api._export_files import ONNX_MANIFEST, check_saved_model
from serving.api._image_files import INPUT
from serving.api._versions import newest_version
from serving.batch._inputs import InputKind, Item, Texts, open_file, target
from training.command.errors import UserError, install
from training.command.files import read_json, replacing
from training.command.native import start_tensorflow

Fields = dict[str, Any]  # of an answer
# A model: takes values; returns for each the fields of its answer, or a ValueError.
Answers = Callable[[Sequence[Any]], Sequence[Fields | ValueError]]
MANIFEST = "job.json"
ASIDE = ".writing"
_MOST_SIZE = 2**26  # of the items in memory: characters, bytes or events
_DECIMALS = {"score": 4, "probability": 6}
_IF_SO = ("truncated", "unknown")  # fields that are left out if false or empty
# Finds the reason in the error of a graph that rejects a single item.
_REFUSAL = re.compile(rf"(?:{INPUT}\[0\] |assertion failed: \['?(?!{INPUT}))([^\]\n']+)")


@dataclass(frozen=True)
class BatchJob:
    """The settings of a job, which determine its output. All workers have the same settings."""

    model: Path
    output: Path
    kind: InputKind = field(default_factory=Texts)
    batch_size: int = 64


@dataclass
class Done:
    """A worker's report on an input; `were_there` is 1 if the output existed already.

    `notes` has a line for each column that the model reads differently than written.
    """

    lines: int = 0
    bad: int = 0
    truncated: int = 0
    unknown: int = 0
    were_there: int = 0
    notes: str = ""


def start(job: BatchJob) -> None:
    """Create the output folder and a manifest of the model in it.

    Raises UserError if the folder has the answers of another model.
    """
    job.output.mkdir(parents=True, exist_ok=True)
    manifest = job.output / MANIFEST
    # The graph and the index of the variables identify a model.
    files_of_graph = [job.model / name for name in ("saved_model.pb", "variables/variables.index")]
    digest = hashlib.sha256(b"".join(x.read_bytes() for x in files_of_graph if x.is_file()))
    own = {"model": str(job.model), "graph": digest.hexdigest()}
    if not manifest.is_file():
        with replacing(manifest, _aside_of(manifest)) as aside:
            aside.write_text(json.dumps(own, indent=1) + "\n", encoding="utf-8")
    found = read_json(manifest)
    if not isinstance(found, dict) or found.get("graph") != own["graph"]:
        raise UserError(f"{job.output} holds answers of another model: choose another --output")


def answer_input(job: BatchJob, model: Answers, files: Sequence[Path]) -> Done:
    """Answer all items of an input, unless its output exists; return the report.

    The output has one JSON object for each item, in order, with these fields:

    - a text: `translation` and `score`; `truncated` if the text is longer than the model reads;
      `unknown` if it has letters that training never saw
    - an image: `image` (the file's name), `text` and `score`
    - a history: its id, `probability`, and `truncated` if it has more events than the model reads
    - each of them: `model_version`; an item that cannot be read has `error` instead of an answer
    """
    final = target(files[0], job.output)
    if final.exists():
        return Done(were_there=1)
    try:
        return _write_answers(job, model, files, final)
    except FileNotFoundError:  # another job wrote the output, and swept this job's temporary file
        if not final.exists():
            raise
        return Done(were_there=1)


def _write_answers(job: BatchJob, model: Answers, files: Sequence[Path], final: Path) -> Done:
    """Write the answers of an input to the file `final`; return the report."""
    done = Done()
    with (
        replacing(final, _aside_of(final)) as aside,
        open_file(aside, "wb", final.suffix == ".gz") as written,
    ):
        for item in _answered(job, model, files):
            record = item.record | ({"error": item.error} if item.error else {})
            text = json.dumps(record, ensure_ascii=False)
            written.write(text.encode("utf-8", "replace") + b"\n")
            done.lines += 1
            done.bad += "error" in record
            done.truncated += "truncated" in record
            done.unknown += "unknown" in record
    done.notes = "\n".join(job.kind.notes)
    job.kind.notes.clear()
    return done


def _aside_of(final: Path) -> Path:
    """Return a unique temporary path next to a file, which a worker writes and then renames."""
    return final.with_name(f".{final.name}.{uuid.uuid4().hex}{ASIDE}")


def sweep(job: BatchJob) -> None:
    """Remove the temporary files of dead workers whose output is complete by now."""
    for aside in job.output.glob(f".*{ASIDE}"):
        name = aside.name.removesuffix(ASIDE).rpartition(".")[0].removeprefix(".")
        if (job.output / name).exists():
            aside.unlink(missing_ok=True)


def summary(job: BatchJob, reports: Sequence[Done], seconds: float) -> dict[str, Any]:
    """Return the totals of a job."""
    names = ("lines", "bad", "truncated", "unknown", "were_there")
    totals = {name: sum(getattr(report, name) for report in reports) for name in names}
    pace = round(totals["lines"] / seconds, 1) if seconds else 0.0
    about = {"output": str(job.output), "model": str(job.model), "files": len(reports), **totals}
    return {**about, "seconds": round(seconds, 1), "lines_per_second": pace}


def _answered(job: BatchJob, model: Answers, files: Sequence[Path]) -> Iterator[Item]:
    """Yield the items of an input in order, with their answers."""
    for window in _windows(job, files):
        good = sorted((item for item in window if not item.error), key=attrgetter("size"))
        for first in range(0, len(good), job.batch_size):
            batch = good[first : first + job.batch_size]
            answers = model([item.value for item in batch])
            for item, answer in zip(batch, answers, strict=True):
                if isinstance(answer, ValueError):
                    item.error = str(answer)
                else:
                    item.record.update(answer, model_version=job.model.name)
        yield from window


def _windows(job: BatchJob, files: Sequence[Path]) -> Iterator[list[Item]]:
    """Yield the items of an input in windows: a number that the kind sets, or fewer large items."""
    window: list[Item] = []
    size = 0
    for item in job.kind.items(files):
        window.append(item)
        size += item.size
        if len(window) >= max(job.kind.window, job.batch_size) or size > _MOST_SIZE:
            yield window
            window, size = [], 0
    yield window


def latest_version(path: Path) -> Path:
    """Return the newest version of a model that is a SavedModel, or the path if it is one itself.

    Raises UserError if there is no SavedModel, or a file is not the one that was exported.
    """
    if version := newest_version(path, "saved_model.pb"):
        try:
            check_saved_model(version)
        except ValueError as error:
            raise UserError(str(error)) from None
        return version.resolve()
    if newest_version(path, ONNX_MANIFEST):
        raise UserError(f"{path} is an ONNX export, and serving.batch needs a SavedModel")
    raise UserError(f"{path} holds no exported model: python -m serving.export makes one")


def load_model(job: BatchJob, threads: int) -> Answers:
    """Load an export; return the function that answers items of the job's kind.

    Raises UserError if the export cannot be loaded, or lacks the signature.
    """
    start_tensorflow()
    import tensorflow as tf
    import tensorflow_text  # noqa: F401 - registers its ops

    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
    except RuntimeError:  # TensorFlow has started its threads already
        pass
    try:
        loaded = tf.saved_model.load(str(job.model))
    except Exception as error:
        raise UserError(f"cannot load {job.model}: {str(error).splitlines()[0]}") from error
    if job.kind.signature not in loaded.signatures:
        raise UserError(f"{job.model} has no signature `{job.kind.signature}`")
    # The variables live only as long as `loaded`.
    return lambda values: _ask(job.kind, loaded.signatures[job.kind.signature], values)


def _ask(kind: InputKind, signature: Any, values: Sequence[Any]) -> list[Fields | ValueError]:
    """Return the answer to each value, or the error of a value that the signature rejects.

    A rejected batch is halved and run again until each bad value is alone.
    """
    import tensorflow as tf

    specs = signature.structured_input_signature[1]
    try:
        inputs = kind.inputs(values, list(specs))
        outputs = signature(**{x: tf.constant(inputs[x], specs[x].dtype) for x in inputs})
    except ValueError as error:
        refusal = error
    except tf.errors.InvalidArgumentError as error:
        found = _REFUSAL.search(error.message)
        refusal = ValueError(found[1].strip() if found else "cannot be read")
    else:
        names = [name for name in kind.outputs if name in outputs]
        rows = zip(*(outputs[name].numpy() for name in names), strict=True)
        return [_fields(zip(names, row, strict=True)) for row in rows]
    if len(values) == 1:
        return [refusal]
    half = len(values) // 2
    return _ask(kind, signature, values[:half]) + _ask(kind, signature, values[half:])


def _fields(outputs: Iterable[tuple[str, Any]]) -> Fields:
    """Return the outputs of a row as fields of its answer, rounded and decoded."""
    fields: Fields = {}
    for name, value in outputs:
        if name in _DECIMALS:
            fields[name] = round(float(value), _DECIMALS[name])
        elif value or name not in _IF_SO:
            fields[name] = value.decode("utf-8", "replace") if isinstance(value, bytes) else True
    return fields


def on_ray(
    job: BatchJob, inputs: Sequence[Sequence[Path]], threads: int, workers: int, address: str | None
) -> Iterator[Done]:
    """Yield the report on each input, answered by Ray workers that have a model each.

    Ray restarts a worker that dies. Each input is a task. Inputs, model and output must be on a
    file system that all workers share. Without an `address`, Ray starts on this machine and stops
    at the end. Raises UserError if Ray is not installed or cannot be reached.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        from ray.data import ActorPoolStrategy, DataContext
    except ModuleNotFoundError:
        raise UserError(f"several workers need Ray: {install('batch')}") from None
    root = str(Path(__file__).parents[2])
    options: dict[str, Any] = {"runtime_env": {"env_vars": {"PYTHONPATH": root}}}
    if address is None:
        options |= {"num_cpus": workers * threads, "object_store_memory": 200_000_000}
        options["include_dashboard"] = False
    try:
        ray.init(address=address, log_to_driver=False, logging_level="error", **options)
    except Exception as error:  # Ray has no common class for its failures to start
        where = f"cannot reach Ray at {address}" if address else "cannot start Ray here"
        raise UserError(f"{where}: {str(error).splitlines()[0]}") from error
    try:
        DataContext.get_current().enable_progress_bars = False
        rows = [{"files": list(map(str, files))} for files in inputs]
        tasks = ray.data.from_items(rows, override_num_blocks=len(rows))
        # Of fixed size: Ray does not grow a pool for a few tasks, even if each takes minutes.
        size = min(workers, len(rows))
        pool = ActorPoolStrategy(size=size, max_tasks_in_flight_per_actor=1)
        reports = tasks.map(
            _Worker, fn_constructor_args=(job, threads), compute=pool, num_cpus=threads
        )
        for row in reports.iter_rows():
            yield Done(**row)
    finally:
        ray.shutdown()


class _Worker:
    """A worker process: loads the model once, then answers inputs."""

    def __init__(self, job: BatchJob, threads: int) -> None:
        self._job, self._model = job, load_model(job, threads)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return asdict(answer_input(self._job, self._model, list(map(Path, row["files"]))))
