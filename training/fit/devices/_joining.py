"""Joins the devices and processes that train together, on the backend of Keras."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import keras

from training.command._workers import JOINING_SECONDS, Worker
from training.command.errors import UserError
from training.fit.devices._processes import ALONE, Processes


@contextmanager
def joined(limit: int | None = None) -> Iterator[Processes]:
    """Use the devices of this process, and join the processes that the environment declares.

    Call this before the backend computes anything.

    Args:
        limit: most devices of this process; None for all.

    Raises UserError if there are fewer devices than `limit`, if the environment variables cannot be
    read, if a process does not start, or if one is lost later.
    """
    backend = keras.backend.backend()
    worker = Worker.here(backend)
    if worker.count > 1:  # only the first process prints
        started = "1 process has" if worker.count == 2 else f"{worker.count - 1} processes have"
        print(f"waiting until {started} started, for at most {JOINING_SECONDS} s", flush=True)
    if backend == "tensorflow":
        from training.fit.devices import _on_tensorflow as on_tensorflow

        with on_tensorflow.joined(worker, limit) as processes:
            yield processes
    elif backend == "jax":
        from training.fit.devices import _on_jax as on_jax

        with on_jax.joined(worker, limit) as processes:
            yield processes
    else:
        if limit and limit > 1:
            raise UserError(f"--devices {limit} works on TensorFlow and JAX, not on {backend}")
        yield ALONE
