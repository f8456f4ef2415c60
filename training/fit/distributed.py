"""Training in several processes and on several devices: who takes part, and who writes.

Every process runs the same command. JAX's environment variables JAX_COORDINATOR_ADDRESS,
JAX_NUM_PROCESSES and JAX_PROCESS_ID give the number of processes; Kubeflow sets them. Several
devices in one process need no variable.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from training.command.errors import RunError, UserError
from training.data.batches import Batch
from training.data.store import PAD_ID
from training.runs.files import RunFiles

HEARTBEAT_SECONDS = 30  # a process without a heartbeat for this long counts as dead


@dataclass(frozen=True)
class Processes:
    """The processes that train together."""

    number: int = 0  # of this process, from 0
    count: int = 1  # of processes
    devices: int = 1  # of all processes together

    def __str__(self) -> str:
        """Return the numbers of processes and devices in words; "" for one device."""
        processes = f" in {self.count} processes" if self.count > 1 else ""
        return f"{processes} on {self.devices} devices" if self.devices > 1 else processes

    @property
    def writes(self) -> bool:
        """Whether this process writes the run; the other processes only compute."""
        return self.number == 0

    def check_batch_size(self, batch_size: int) -> None:
        """Raise a UserError if the batch size is no multiple of the number of devices."""
        if batch_size % self.devices:
            wanted = f"a multiple of the {self.devices} devices"
            raise UserError.expected("batch_size", wanted, batch_size)

    def check_same(self, files: RunFiles) -> None:
        """Raise a RunError if the processes do not all see the same run.

        Such processes would wait for one another for ever. All processes must call this method: it
        returns only after all of them have called it.
        """
        if self.count == 1:
            return
        from jax.experimental.multihost_utils import process_allgather

        texts = files.config.read_bytes(), files.origin.read_bytes()
        digest = hashlib.sha256(repr((texts, [*files.all_checkpoints()])).encode()).digest()
        digests = np.asarray(process_allgather(np.frombuffer(digest, np.uint8)))
        if (digests != digests[0]).any():
            raise RunError(f"{files.path} differs between processes: expected one they share")

    def wait(self) -> None:
        """Wait until all processes have called this method."""
        if self.count > 1:
            from jax.experimental.multihost_utils import sync_global_devices

            sync_global_devices("training")

    def write(self, function: Callable[..., Any], *args: Any) -> None:
        """Call a function in the process that writes the run; all processes wait for it."""
        if self.writes:
            with undistributed():
                function(*args)
        self.wait()

    def share(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Yield this process's rows of each batch.

        Rows of padding make the number of rows a multiple of the number of devices.
        """
        if self.devices == 1:
            yield from batches
            return
        for inputs, labels in batches:
            yield {key: self._part(rows) for key, rows in inputs.items()}, self._part(labels)

    def _part(self, rows: np.ndarray) -> np.ndarray:
        width = [(0, -len(rows) % self.devices), *[(0, 0)] * (rows.ndim - 1)]
        return np.split(np.pad(rows, width, constant_values=PAD_ID), self.count)[self.number]


@contextmanager
def undistributed() -> Iterator[None]:
    """Within this context, Keras makes variables and tensors on one device of this process.

    Keras makes variables when it saves weights. If a variable belongs to all processes, all of them
    must make it: a single process would wait for ever. Tensors would be laid out over all devices.
    """
    distribution = keras.distribution.distribution()
    keras.distribution.set_distribution(None)
    try:
        yield
    finally:
        keras.distribution.set_distribution(distribution)


ALONE = Processes()


@contextmanager
def joined() -> Iterator[Processes]:
    """Join the processes that the environment variables declare, and use all their devices.

    If a process dies, JAX ends the other processes with its own error. Then restart all processes.
    Raises UserError for several processes on a backend other than JAX, or for invalid numbers.
    """
    count = _number("JAX_NUM_PROCESSES", 1)
    number = _number("JAX_PROCESS_ID", 0)
    if not 0 <= number < count:
        raise UserError(f"JAX_PROCESS_ID expected 0 to {count - 1}. Received: {number}")
    if keras.backend.backend() != "jax":
        if count > 1:
            backend = keras.backend.backend()
            raise UserError(f"{count} processes need KERAS_BACKEND=jax, but it is {backend}")
        yield ALONE
        return
    import jax

    if count > 1:
        address = os.environ.get("JAX_COORDINATOR_ADDRESS", "")
        if ":" not in address:  # Kubeflow sets the port in another variable
            address += f":{os.environ.get('JAX_COORDINATOR_PORT', '')}"
        jax.distributed.initialize(
            address,
            count,
            number,
            cluster_detection_method="deactivate",
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=5,  # after an error, the longest wait for the other processes
        )
    devices = len(keras.distribution.list_devices())
    with ExitStack() as stack:
        if devices > 1:
            shared = keras.distribution.DataParallel(auto_shard_dataset=False)
            keras.distribution.set_distribution(shared)
            stack.callback(keras.distribution.set_distribution, None)
        if number:
            nothing = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
            stack.enter_context(redirect_stdout(nothing))
        yield Processes(number, count, devices)


def _number(name: str, default: int) -> int:
    text = os.environ.get(name) or str(default)
    if not text.isdecimal():
        raise UserError(f"{name} expected a whole number. Received: {text}")
    return int(text)
