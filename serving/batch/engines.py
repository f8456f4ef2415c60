"""Engines that run a job: this process, or workers of Ray Data here or on a cluster.

An engine hands files to `serving.batch.job.answer_file` in processes that have loaded the model.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from serving.batch.job import Done, Job, JobError, answer_file
from serving.batch.kinds import Kind
from training.command.errors import UserError, install


class ModelError(UserError):
    """A directory that holds no model of this kind."""


def latest_version(path: Path) -> Path:
    """Return a model's newest version directory, or the path itself if it is one.

    Raises:
        ModelError: if there is none.
    """
    if (path / "saved_model.pb").is_file():
        return path.resolve()
    versions = [entry for entry in path.glob("*") if entry.name.isdecimal()]
    versions = [entry for entry in versions if (entry / "saved_model.pb").is_file()]
    if not versions and any(path.glob("manifest.json")) | any(path.glob("*/manifest.json")):
        raise ModelError(f"{path} expected to be a SavedModel. Received: an export in ONNX")
    if not versions:
        raise ModelError(f"{path} holds no exported model: python -m serving.export makes one")
    return max(versions, key=lambda entry: int(entry.name)).resolve()


class Model:
    """The signature of an export that answers items of a kind; loaded once a process.

    Raises:
        ModelError: if it cannot be loaded, or has no such signature.
    """

    def __init__(self, version: Path, kind: Kind, threads: int) -> None:
        import training.command.startup  # noqa: F401

        import tensorflow as tf
        import tensorflow_text  # noqa: F401 - registers its ops

        try:
            tf.config.threading.set_intra_op_parallelism_threads(threads)
            tf.config.threading.set_inter_op_parallelism_threads(threads)
        except RuntimeError:  # TensorFlow runs already, with threads of its own
            pass
        self._kind = kind
        try:
            self._loaded = tf.saved_model.load(str(version))
            self._function = self._loaded.signatures[kind.signature]
        except KeyError:
            raise ModelError(f"{version} has no signature `{kind.signature}`") from None
        except Exception as error:
            raise ModelError(f"cannot load {version}: {str(error).splitlines()[0]}") from error

    def __call__(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return an answer for each value."""
        return self._kind.answer(self._function, values)


def in_process(job: Job, paths: Sequence[Path], threads: int) -> Iterator[Done]:
    """Answer input by input, here."""
    model = None
    for path in paths:
        model = model or Model(job.model, job.kind, threads)
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
        self._job, self._model = job, Model(job.model, job.kind, threads)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return asdict(answer_file(self._job, self._model, Path(row["item"])))
