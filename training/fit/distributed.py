"""Training in several processes and on several devices: who takes part, and who writes.

Every process runs the same command. Keras's environment variables, or JAX's under Kubeflow, say how
many there are. Several devices in one process need no variable.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from training.command.errors import RunError, UserError
from training.data.batches import Batch
from training.data.ids import PAD_ID
from training.fit.recorder import Recorder
from training.runs.files import RunFiles

NAMES = (  # of the first process's address, of how many there are, of this one's number
    (
        "KERAS_DISTRIBUTION_JOB_ADDRESSES",
        "KERAS_DISTRIBUTION_NUM_PROCESSES",
        "KERAS_DISTRIBUTION_PROCESS_ID",
    ),
    ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"),
)
HEARTBEAT_SECONDS = 30  # without a sign of life, after which a process counts as dead
PATIENCE_SECONDS = 300  # to wait for all to come, and for all to end


@dataclass(frozen=True)
class Asked:
    """The processes that the environment asks for.

    Attributes:
        coordinator: `host:port` at which the first process waits for the others.
        count: processes.
        number: of this one, from 0.
    """

    coordinator: str
    count: int
    number: int


def asked_for(environment: Mapping[str, str]) -> Asked | None:
    """Return what an environment asks for; None for a single process.

    Raises:
        UserError: if something is missing, or does not fit.
    """
    for names in NAMES:
        if names[1] not in environment:
            continue
        count = _whole(environment, names[1], 1, None)
        if count == 1:
            return None
        for name in names:
            if not environment.get(name):
                raise UserError(f"{names[1]}={count} expected {name} beside it. Received: none")
        number = _whole(environment, names[2], 0, count - 1)
        addresses = environment[names[0]].split(",")
        if len(addresses) not in (1, count):
            raise UserError(
                f"{names[0]} expected one address, or one for each of {count} processes. "
                f"Received: {len(addresses)}"
            )
        host, separator, port = addresses[0].strip().rpartition(":")
        if not separator:
            host, port = port, environment.get("JAX_COORDINATOR_PORT", "")
        if not host or not port.isdecimal():
            raise UserError(f"{names[0]} expected HOST:PORT. Received: {addresses[0]}")
        return Asked(f"{host}:{port}", count, number)
    return None


def _whole(environment: Mapping[str, str], name: str, least: int, most: int | None) -> int:
    text = environment[name]
    value = int(text) if text.isdecimal() else -1
    if value < least or (most is not None and value > most):
        wanted = f"at least {least}" if most is None else f"{least} to {most}"
        raise UserError(f"{name} expected a whole number, {wanted}. Received: {text}")
    return value


@dataclass(frozen=True)
class Processes:
    """Those that train together.

    Attributes:
        number: of this process, from 0.
        count: of processes.
        devices: of all processes together.
    """

    number: int = 0
    count: int = 1
    devices: int = 1

    def __str__(self) -> str:
        """Say how many there are, where there are several."""
        processes = f" in {self.count} processes" if self.count > 1 else ""
        return f"{processes} on {self.devices} devices" if self.devices > 1 else processes

    @property
    def writes(self) -> bool:
        """Whether this process writes the run; the others compute alone."""
        return self.number == 0

    def check_batch_size(self, batch_size: int) -> None:
        """Raise a UserError where the devices would not get as many pairs each."""
        if batch_size % self.devices:
            raise UserError(
                f"batch_size expected a multiple of the {self.devices} devices. "
                f"Received: {batch_size}"
            )

    def check_same(self, files: RunFiles) -> None:
        """Raise a RunError where this process sees another run than the first.

        They would wait for one another for ever. All processes must call this together; until all
        have, none goes on.
        """
        if self.count == 1:
            return
        from jax.experimental.multihost_utils import process_allgather

        texts = files.config.read_bytes(), files.origin.read_bytes()
        digest = hashlib.sha256(repr((texts, [*files.all_checkpoints()])).encode()).digest()
        digests = np.asarray(process_allgather(np.frombuffer(digest, np.uint8)))
        if (digests != digests[0]).any():
            raise RunError(
                f"{files.path} is not the same for all processes: expected one they share"
            )

    def wait(self) -> None:
        """Wait until all processes have come here."""
        if self.count > 1:
            from jax.experimental.multihost_utils import sync_global_devices

            sync_global_devices("training")

    def share(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Yield this process's rows of each batch, with rows of padding for as many a device."""
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
    """Within this, Keras makes variables and tensors of this process alone, on one device.

    Keras makes variables when it saves weights. A variable of all processes has to be made by all:
    a single process would wait for ever. Tensors would be laid out over all devices.
    """
    distribution = keras.distribution.distribution()
    keras.distribution.set_distribution(None)
    try:
        yield
    finally:
        keras.distribution.set_distribution(distribution)


ALONE = Processes()


class SharedRecorder(Recorder):
    """A recorder for several processes, of which one writes while the others wait."""

    def __init__(self, processes: Processes, *args: Any) -> None:
        super().__init__(*args)
        self.processes = processes

    def keep(self, *args: Any) -> None:
        """Write an epoch."""
        if self.processes.writes:
            with undistributed():
                super().keep(*args)
        self.processes.wait()

    def keep_average(self, *args: Any) -> None:
        """Write the mean of the weights."""
        if self.processes.writes:
            with undistributed():
                super().keep_average(*args)
        self.processes.wait()


@contextmanager
def joined() -> Iterator[Processes]:
    """Join the processes that the environment names, and use all their devices.

    With several processes, any error, and the loss of another process, end this one with a line on
    standard error and status 1: the others would wait for it. Native output is shown where the
    cause is unknown.

    Raises:
        UserError: if the environment does not fit, or the backend is not JAX and there are several.
    """
    asked = asked_for(os.environ)
    if keras.backend.backend() != "jax":
        if asked:
            raise UserError(
                f"{asked.count} processes expected KERAS_BACKEND=jax: they train on JAX alone. "
                f"Received: {keras.backend.backend()}"
            )
        yield ALONE
        return
    with ExitStack() as stack:
        if asked:
            stack.enter_context(_connected(asked))
        devices = len(keras.distribution.list_devices())
        number, count = (asked.number, asked.count) if asked else (0, 1)
        if devices > 1:
            shared = keras.distribution.DataParallel(auto_shard_dataset=False)
            keras.distribution.set_distribution(shared)
            stack.callback(keras.distribution.set_distribution, None)
        yield Processes(number, count, devices)


@contextmanager
def _connected(asked: Asked) -> Iterator[None]:
    import jax

    from training.fit.losing import one_line_at_the_end

    with one_line_at_the_end(f"process {asked.number} of {asked.count}"), ExitStack() as stack:
        with suppress(AttributeError):  # this service keeps SIGTERM from ending a process
            jax.config.update("jax_enable_preemption_service", False)
        jax.distributed.initialize(
            asked.coordinator,
            asked.count,
            asked.number,
            cluster_detection_method="deactivate",
            initialization_timeout=PATIENCE_SECONDS,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=PATIENCE_SECONDS,
        )
        if asked.number:
            nothing = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
            stack.enter_context(redirect_stdout(nothing))
        yield
        jax.distributed.shutdown()
