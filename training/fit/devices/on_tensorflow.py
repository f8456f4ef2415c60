"""Training on several devices of TensorFlow, in one process or several.

`training.command.workers` describes the variable TF_CONFIG, which lists several processes. Several
devices in one process need no variable.
"""

from __future__ import annotations

import functools
import gc
import os
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from training.command.errors import RunError, UserError
from training.command.workers import Worker
from training.data.batches import Batches
from training.data.store import PAD_ID
from training.fit.devices.processes import ALONE, Processes
from training.fit.devices.tensorflow_step import MirroredModel

Tensor = Any
_CHUNK = 1024  # int32 numbers that processes exchange at a time


@dataclass(frozen=True)
class MirroredProcesses(Processes):
    """Several devices of TensorFlow, in one process or several."""

    strategy: Any = field(default=None, repr=False)  # a `tf.distribute.Strategy`

    def scope(self) -> AbstractContextManager[Any]:
        """Return the strategy's scope: each variable gets a copy on each device."""
        return self.strategy.scope()

    def shared(self, model: keras.Model) -> keras.Model:
        """Return a `MirroredModel` of the same layers."""
        return MirroredModel(model.input, model.output, name=model.name)

    def epoch(self, batches: Batches, number: int) -> Any:
        """Return the batches of an epoch, as `share` divides them."""
        return share(self.strategy, batches.dataset(number))

    def _total(self, values: np.ndarray) -> np.ndarray:
        chunks = np.resize(values, (-(-len(values) // _CHUNK), _CHUNK))  # traced for one size
        sums = [_sum(self.strategy, self.devices // self.count, chunk) for chunk in chunks]
        return np.concatenate(sums)[: len(values)]


def _sum(strategy: tf.distribute.Strategy, here: int, values: np.ndarray) -> np.ndarray:
    """Return the sum of the processes' arrays of size _CHUNK; each has `here` devices."""

    def of_replica(context: tf.distribute.ValueContext) -> tf.Tensor:
        return tf.constant(values * (context.replica_id_in_sync_group % here == 0))

    parts = strategy.experimental_distribute_values_from_function(of_replica)
    return strategy.experimental_local_results(_summing(strategy)(parts))[0].numpy()


@functools.cache
def _summing(strategy: tf.distribute.Strategy) -> Any:
    def of_device(part: Tensor) -> Tensor:
        part = tf.identity(part)  # on a device, unlike the argument of the function
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, part)

    return tf.function(lambda parts: strategy.run(of_device, args=(parts,)), autograph=False)


@contextmanager
def joined(worker: Worker, limit: int | None) -> Iterator[Processes]:
    """Use the devices of this process, together with the other workers of TF_CONFIG.

    See `training.fit.devices.joining.joined`.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if limit and gpus[limit:]:
        tf.config.set_visible_devices(gpus[:limit], "GPU")
    if worker.count > 1:
        _check_limit(limit, [gpu.name for gpu in gpus] or ["CPU:0"])
        worker.gather()
        _answer_while_computing()
        try:
            strategy = tf.distribute.MultiWorkerMirroredStrategy()
            devices = strategy.num_replicas_in_sync
            _expect_all_batches(strategy)
            yield MirroredProcesses(worker.number, worker.count, devices, strategy)
        except tf.errors.OpError as error:
            raise _lost(error) from None
        return
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    _check_limit(limit, [device.name for device in devices])
    names = [device.name for device in devices[:limit]]
    if len(names) == 1:
        yield ALONE
        return
    strategy = tf.distribute.MirroredStrategy(names)
    _expect_all_batches(strategy)
    yield MirroredProcesses(devices=len(names), strategy=strategy)


def _answer_while_computing() -> None:
    """Use at least two threads for operations, also on one core.

    One thread would send gradients to other workers only after the operations of the next step.
    Then the workers compute by turns.
    """
    threading = tf.config.threading
    affinity = getattr(os, "sched_getaffinity", None)  # only on Linux
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    if (threading.get_inter_op_parallelism_threads() or cores) < 2:
        threading.set_inter_op_parallelism_threads(2)


def _check_limit(limit: int | None, names: list[str]) -> None:
    if limit and limit > len(names):
        listed = ", ".join(name.rpartition("device:")[2] for name in names)
        raise UserError(
            f"--devices is {limit}, but TensorFlow has {len(names)} to train on: {listed}"
        )


def _expect_all_batches(strategy: tf.distribute.Strategy) -> None:
    """Stop workers from asking one another in each step whether a batch is left.

    `fit` counts the steps.
    """
    strategy.extended.experimental_enable_get_next_as_optional = False


def share(strategy: tf.distribute.Strategy, batches: tf.data.Dataset) -> Any:
    """Return batches of which each device takes its rows; added rows make them as many.

    A device's part is `(x, y, valid, shares, rows)`: inputs and labels; float32 `(b,)`, 0 for an
    added row; the device's shares of the batch's tokens (for a label: rows) and of its rows,
    `(2,)`; and the number of rows of the batch, `()`. An added row has the source of the first row
    and only padding as target.
    """
    count = strategy.num_replicas_in_sync

    def split(x: dict, y: Tensor) -> tuple:
        missing = -tf.shape(y)[0] % count

        def parts(rows: Tensor, added: Tensor) -> Tensor:
            shape = rows.shape[1:]
            added = tf.repeat(tf.cast(added, rows.dtype), missing, axis=0)
            rows = tf.concat([rows, added], 0)
            size = tf.shape(rows)
            rows = tf.reshape(rows, tf.concat([[count, size[0] // count], size[1:]], 0))
            rows.set_shape([count, None, *shape])
            return rows

        texts = y.shape.rank == 2
        target = PAD_ID * tf.ones_like(y[:1])
        tokens = tf.cast(y != PAD_ID, "float32") if texts else tf.ones_like(y)[:, None]
        tokens = tf.concat([tokens, tf.zeros([missing, tf.shape(tokens)[1]])], 0)
        tokens = tf.reshape(tokens, [count, -1, tf.shape(tokens)[1]])  # (count, b, T)
        valid = tf.reduce_max(tokens, 2)
        counts = tf.stack([tf.reduce_sum(tokens, [1, 2]), tf.reduce_sum(valid, 1)], 1)
        totals = tf.reduce_sum(counts, 0)
        xs = {key: parts(v, target if key == "target" else v[:1]) for key, v in x.items()}
        rows = tf.fill([count], tf.cast(tf.shape(y)[0], "float32"))
        return xs, parts(y, target), valid, counts / tf.maximum(totals, 1.0), rows

    def of_worker(context: tf.distribute.InputContext) -> tf.data.Dataset:
        here = context.num_replicas_in_sync // context.num_input_pipelines
        first = context.input_pipeline_id * here

        def own(*data: Any) -> Any:
            return tf.nest.map_structure(lambda part: part[first : first + here], data)

        return batches.map(split).map(own).unbatch().prefetch(2 * here)

    return strategy.distribute_datasets_from_function(of_worker)


def _lost(error: tf.errors.OpError) -> RunError:
    reason = (error.message.splitlines() or [""])[0]
    # A pool of threads in a frame would print a traceback of its own when Python ends.
    traceback.clear_frames(error.__traceback__)
    gc.collect()
    return RunError(
        "Another worker was lost. Start the same command on all workers, with --resume instead of "
        f"the data: training continues after its last epoch. TensorFlow reports: {reason}"
    )
