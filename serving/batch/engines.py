"""Engines that run a job: this process, or workers of Ray Data here or on a cluster.

An engine hands files to `serving.batch.job.answer_file` in processes that have loaded the model.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from serving.batch.job import Answers, Done, Job, JobError, answer_file
from training.command.errors import UserError, install


class ModelError(UserError):
    """A directory that holds no model of this kind."""


def latest_version(path: Path) -> Path:
    """Return a model's newest version directory, or the path itself if it is one.

    Raises:
        ModelError: if there is none.
    """
    numbered = [entry for entry in path.glob("*") if entry.name.isdecimal()]
    for entry in (path, *sorted(numbered, key=lambda entry: int(entry.name), reverse=True)):
        if (entry / "saved_model.pb").is_file():
            return entry.resolve()
        if (entry / "manifest.json").is_file():
            raise ModelError(f"{path} expected to be a SavedModel. Received: an export in ONNX")
    raise ModelError(f"{path} holds no exported model: python -m serving.export makes one")


def load_model(job: Job, threads: int) -> Answers:
    """Return the signature of an export that answers items of the job's kind.

    Raises:
        ModelError: if it cannot be loaded, or has no such signature.
    """
    import training.command.startup  # noqa: F401

    import tensorflow as tf
    import tensorflow_text  # noqa: F401 - registers its ops

    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
    except RuntimeError:  # TensorFlow runs already, with threads of its own
        pass
    try:
        loaded = tf.saved_model.load(str(job.model))
    except Exception as error:
        raise ModelError(f"cannot load {job.model}: {str(error).splitlines()[0]}") from error
    if job.kind.signature not in loaded.signatures:
        raise ModelError(f"{job.model} has no signature `{job.kind.signature}`")
    # Its variables are there as long as it is.
    return lambda values: job.kind.answer(loaded.signatures[job.kind.signature], values)


def in_process(job: Job, paths: Sequence[Path], threads: int) -> Iterator[Done]:
    """Answer input by input, here."""
    model = load_model(job, threads)
    for path in paths:
        yield answer_file(job, model, path)


def on_ray(
    job: Job, paths: Sequence[Path], threads: int, workers: int, address: str | None
) -> Iterator[Done]:
    """Answer with workers that have a model each; a worker that dies is started again.

    Args:
        job: its model, files and output are on a file system that all workers share.
        paths: the files, one a task.
        threads: of each worker.
        workers: how many.
        address: of a Ray cluster; None starts Ray on this machine and stops it in the end.

    Raises:
        JobError: if Ray is not installed, or cannot be reached.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        from ray.data import ActorPoolStrategy, DataContext
    except ModuleNotFoundError:
        raise JobError(f"several workers need Ray: {install('batch')}") from None
    root = str(Path(__file__).parents[2])
    options: dict[str, Any] = {"runtime_env": {"env_vars": {"PYTHONPATH": root}}}
    if address is None:
        options |= {
            "num_cpus": workers * threads,
            "include_dashboard": False,
            "object_store_memory": 200_000_000,
        }
    try:
        ray.init(address=address, log_to_driver=False, logging_level="error", **options)
    except Exception as error:  # Ray raises it bare where it cannot start
        where = f"cannot reach Ray at {address}" if address else "cannot start Ray here"
        raise JobError(f"{where}: {str(error).splitlines()[0]}") from error
    try:
        context = DataContext.get_current()
        context.enable_progress_bars = False
        tasks = ray.data.from_items([str(path) for path in paths], override_num_blocks=len(paths))
        reports = tasks.map(
            _Worker,
            fn_constructor_args=(job, threads),
            # A pool that may grow stays at one worker: a task of minutes is no reason to grow it.
            compute=ActorPoolStrategy(
                size=min(workers, len(paths)), max_tasks_in_flight_per_actor=1
            ),
            num_cpus=threads,
        )
        for row in reports.iter_rows():
            yield Done(**row)
    finally:
        ray.shutdown()


class _Worker:
    """A process that has loaded the model."""

    def __init__(self, job: Job, threads: int) -> None:
        self._job, self._model = job, load_model(job, threads)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return asdict(answer_file(self._job, self._model, Path(row["item"])))
