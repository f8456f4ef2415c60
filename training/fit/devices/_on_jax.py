"""Training on several devices of JAX, in one process or several.

`training.command._workers` describes the environment variables of several processes. Several
devices in one process need no variable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import jax
import keras
import numpy as np
from jax.experimental.multihost_utils import process_allgather

from training.command._workers import JOINING_SECONDS, Worker
from training.command.errors import RunError, UserError
from training.data.batches._batches import Batches
from training.data.tokens.store import PAD_ID
from training.fit.devices._jax_step import ShardedModel, undistributed
from training.fit.devices._processes import ALONE, Processes

HEARTBEAT_SECONDS = 30  # a process without a heartbeat for this long counts as dead


class ShardedProcesses(Processes):
    """Several devices of JAX, in one process or several."""

    def on_first(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function in the first process, on one of its devices: see `Processes`."""
        with undistributed():
            return super().on_first(function, *args)

    def _total(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(process_allgather(values)).reshape(self.count, -1).sum(axis=0)

    def shared(self, model: keras.Model) -> keras.Model:
        return ShardedModel(model.input, model.output, name=model.name)

    def local(self) -> AbstractContextManager[Any]:
        return undistributed()

    def to_score(
        self, model: keras.Model, make: Callable[[], keras.Model]
    ) -> tuple[keras.Model, Callable[[], None]]:
        """Return another model, on one device of this process: see `Processes`."""
        with undistributed():
            own = make()

        def update() -> None:
            for variable, other in zip(own.weights, model.weights, strict=True):
                variable.assign(np.asarray(other.value))

        return own, update

    def epoch(self, batches: Batches, number: int) -> Iterator[tuple]:
        """Yield this process's rows of each batch of an epoch, and which of them were not added.

        Added rows make the number of rows a multiple of the number of devices. An added row has the
        source of the first row, and only padding as target. The third array of a batch is float32
        `(B,)`, 0 for an added row.
        """
        for inputs, labels in batches.epoch(number):
            missing = -len(labels) % self.devices
            valid = np.concatenate([np.ones(len(labels)), np.zeros(missing)]).astype(np.float32)
            padding = np.full_like(labels[:1], PAD_ID)
            added = {name: rows[:1] for name, rows in inputs.items()}
            if "target" in added:
                added["target"] = padding
            parts = {
                name: self._part(np.concatenate([rows, np.repeat(added[name], missing, axis=0)]))
                for name, rows in inputs.items()
            }
            labels = np.concatenate([labels, np.repeat(padding, missing, axis=0)])
            yield parts, self._part(labels), self._part(valid)

    def _part(self, rows: np.ndarray) -> np.ndarray:
        return np.split(rows, self.count)[self.number]


@contextmanager
def joined(worker: Worker, limit: int | None) -> Iterator[Processes]:
    """Use the devices of this process, together with those of the other processes.

    See `training.fit.devices._joining.joined`.
    """
    if worker.count > 1:
        _initialize(worker)
    local = jax.local_devices()
    if limit and limit > len(local):
        listed = ", ".join(map(str, local))
        raise UserError(f"--devices is {limit}, but JAX has {len(local)} to train on: {listed}")
    devices = [
        device
        for process in range(worker.count)
        for device in jax.local_devices(process)[: limit or None]
    ]
    if len(devices) == 1:
        yield ALONE
        return
    with ExitStack() as stack:
        names = [f"{device.platform}:{device.id}" for device in devices]
        shared = keras.distribution.DataParallel(devices=names, auto_shard_dataset=False)
        keras.distribution.set_distribution(shared)
        stack.callback(keras.distribution.set_distribution, None)
        try:
            yield ShardedProcesses(worker.number, worker.count, len(devices))
        except jax.errors.JaxRuntimeError as error:
            if worker.count == 1:
                raise
            reason = (str(error).splitlines() or [""])[0]
            raise RunError(
                "Another process was lost. Start the same command on all of them, with --resume: "
                f"training continues after its last epoch. JAX reports: {reason}"
            ) from None


def _initialize(worker: Worker) -> None:
    (address,) = worker.addresses
    try:
        jax.distributed.initialize(
            address,
            worker.count,
            worker.number,
            cluster_detection_method="deactivate",
            initialization_timeout=JOINING_SECONDS,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=5,  # after an error, the longest wait for the other processes
        )
    except (ValueError, RuntimeError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise UserError(
            f"Not all {worker.count} processes have joined at JAX_COORDINATOR_ADDRESS, "
            f"{address!r}. JAX reports: {reason}"
        ) from None
