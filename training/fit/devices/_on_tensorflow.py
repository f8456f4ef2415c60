"""Training on several devices of TensorFlow, in one process or several.

`training.command._workers` describes the variable TF_CONFIG, which lists several processes. Several
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

from training.command._workers import Worker
from training.command.errors import RunError, UserError
from training.data.batches._batches import Batches
from training.data.tokens.store import PAD_ID
from training.fit.devices._processes import ALONE, Processes
from training.fit.devices._tensorflow_step import MirroredModel

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
        return MirroredModel(model.input, model.output, name=model.name)

    def epoch(self, batches: Batches, number: int) -> Any:
        """Return the batches of an epoch, as `share` divides them."""
        here = self.devices // self.count
        return share(self.devices, self.number * here, here, batches.dataset(number))

    def _total(self, values: np.ndarray) -> np.ndarray:
        chunks = np.resize(values, (-(-len(values) // _CHUNK), _CHUNK))  # traced for one size
        sums = [_sum(self.strategy, self.devices // self.count, chunk) for chunk in chunks]
        return np.concatenate(sums)[: len(values)]


class _Undistributed:
    """Lets `fit` take the datasets of `share` as they are.

    TensorFlow's distributed datasets have iterators on the devices. Their autotuner delays the end
    of each epoch, by as long as the epoch took. `Batches.dataset` turns its own autotuner off.
    """

    def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
        return dataset


class _Devices(_Undistributed, tf.distribute.MirroredStrategy):
    pass


class _Workers(_Undistributed, tf.distribute.MultiWorkerMirroredStrategy):
    pass


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

    See `training.fit.devices._joining.joined`.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if limit and gpus[limit:]:
        tf.config.set_visible_devices(gpus[:limit], "GPU")
    if worker.count > 1:
        _check_limit(limit, [gpu.name for gpu in gpus] or ["CPU:0"])
        worker.gather()
        _answer_while_computing()
        try:
            strategy = _Workers()
            devices = strategy.num_replicas_in_sync
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
    strategy = _Devices(names)
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


def share(count: int, first: int, here: int, batches: tf.data.Dataset) -> tf.data.Dataset:
    """Return batches of which each device takes its rows; added rows make them as many.

    The first axis of each array is this process's devices. The arrays are `(x, y, valid, shares,
    rows)`: inputs and labels; float32 `(here, b)`, 0 for an added row; the device's shares of the
    batch's tokens (for a label: rows) and of its rows, `(here, 2)`; and the number of rows of the
    batch, `(here,)`. An added row has the source of the first row
    and only padding as target.

    Args:
        count: devices of all processes together.
        first: number of this process's first device.
        here: devices of this process.
        batches: the batches of an epoch.
    """

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

    def own(*data: Any) -> Any:
        return tf.nest.map_structure(lambda part: part[first : first + here], data)

    return batches.map(split).map(own).prefetch(2)


def _lost(error: tf.errors.OpError) -> RunError:
    reason = (error.message.splitlines() or [""])[0]
    # A pool of threads in a frame would print a traceback of its own when Python ends.
    traceback.clear_frames(error.__traceback__)
    gc.collect()
    return RunError(
        "Another worker was lost. Start the same command on all workers, with --resume instead of "
        f"the data: training continues after its last epoch. TensorFlow reports: {reason}"
    )
