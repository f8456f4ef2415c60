"""Which of several processes this one is, from the environment variables of the backend.

TensorFlow's processes are in TF_CONFIG, a JSON object; JAX's in JAX_NUM_PROCESSES, JAX_PROCESS_ID
and JAX_COORDINATOR_ADDRESS. Kubeflow Trainer and other launchers set them. This module imports no
backend, so that a mistake is reported at once.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from training.command.errors import UserError

JOINING_SECONDS = 300  # longest wait for all processes to start
_EXAMPLE = '{"cluster": {"worker": ["HOST:PORT", …]}, "task": {"type": "worker", "index": 0}}'


@dataclass(frozen=True)
class Worker:
    """One of the processes that train a run together."""

    number: int = 0  # of this process, from 0; the first process writes the run
    count: int = 1  # of processes
    addresses: tuple[str, ...] = ()  # HOST:PORT of each process of TF_CONFIG

    @classmethod
    def here(cls, backend: str) -> Worker:
        """Return which process this one is, on "tensorflow", "jax" or "torch".

        Raises UserError for variables that cannot be read, or several processes on PyTorch.
        """
        on_jax, on_tensorflow = _of_jax(), _of_tensorflow()
        if backend == "jax":
            return on_jax
        if backend == "tensorflow":
            if on_jax.count > 1 and on_tensorflow.count == 1:  # some launchers set both
                raise UserError(
                    "JAX_NUM_PROCESSES is set, but the backend is TensorFlow. "
                    "Set KERAS_BACKEND=jax, or TF_CONFIG instead"
                )
            return on_tensorflow
        if max(on_jax.count, on_tensorflow.count) > 1:
            raise UserError(
                f"Several processes train on TensorFlow or JAX, but the backend is {backend}. "
                "Set KERAS_BACKEND, or unset TF_CONFIG and JAX_NUM_PROCESSES"
            )
        return cls()

    def gather(self, seconds: float = JOINING_SECONDS) -> None:
        """Wait until all processes of TF_CONFIG have started.

        TensorFlow would wait for an hour, without a message, and could not be interrupted. The
        first process listens on its own port until all others have called it, and answers them.
        Then TensorFlow can use the port.

        Raises UserError if a process has not started after `seconds`.
        """
        deadline = time.monotonic() + seconds
        host, _, port = self.addresses[0].rpartition(":")
        if self.number:
            self._call(host.strip("[]"), int(port), deadline)
        else:
            self._listen(int(port), deadline)

    def _listen(self, port: int, deadline: float) -> None:
        missing = set(range(1, self.count))
        with ExitStack() as stack:
            family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
            dual = family == socket.AF_INET6
            try:
                listener = socket.create_server(("", port), family=family, dualstack_ipv6=dual)
            except OSError as error:
                raise UserError(f"Cannot listen on port {port}: {error.strerror}") from None
            stack.enter_context(listener)
            callers = []
            while missing:
                listener.settimeout(max(0.01, deadline - time.monotonic()))
                try:
                    caller, _ = listener.accept()
                except TimeoutError:
                    raise self._absent(missing) from None
                stack.enter_context(caller)
                caller.settimeout(5)
                with suppress(OSError, ValueError):  # something else may call, such as a probe
                    missing.discard(int(caller.recv(16)))
                    callers.append(caller)
            for caller in callers:
                with suppress(OSError):
                    caller.sendall(b"go")
                    caller.recv(1)  # the caller closes first, so the port is free at once

    def _call(self, host: str, port: int, deadline: float) -> None:
        while (left := deadline - time.monotonic()) > 0:
            with suppress(OSError), socket.create_connection((host, port), timeout=left) as call:
                call.sendall(str(self.number).encode())
                if call.recv(2) == b"go":
                    return
            time.sleep(min(0.2, max(0, left)))
        raise self._absent({0})

    def _absent(self, missing: set[int]) -> UserError:
        names = ", ".join(f"{number} ({self.addresses[number]})" for number in sorted(missing))
        return UserError(f"Not all processes of TF_CONFIG have started. Missing: {names}")


def _of_jax() -> Worker:
    count = _number("JAX_NUM_PROCESSES", 1)
    number = _number("JAX_PROCESS_ID", 0)
    if not 0 <= number < count:
        raise UserError(
            f"JAX_PROCESS_ID must be from 0 to {count - 1}, because JAX_NUM_PROCESSES is {count}. "
            f"It is {number}"
        )
    return Worker(number, count)


def _number(name: str, default: int) -> int:
    text = os.environ.get(name) or str(default)
    if not (text.isascii() and text.isdecimal()):
        raise UserError(f"{name} must be a whole number. It is {text!r}")
    return int(text)


def _of_tensorflow() -> Worker:
    """Return the process of TF_CONFIG: the chief, if there is one, comes before the workers."""
    text = os.environ.get("TF_CONFIG") or "{}"
    try:
        read = json.loads(text)
        if not isinstance(read, Mapping):
            raise ValueError("it is no JSON object")
        cluster: Any = read.get("cluster") or {}
        if not cluster:
            return Worker()
        addresses = [*cluster.get("chief", ()), *cluster.get("worker", ())]
        if unused := sorted(set(cluster) - {"chief", "worker"}):
            raise ValueError(f"the cluster has {', '.join(unused)}; only chief and worker train")
        ports = [each.rpartition(":")[2] for each in addresses]
        if not addresses or not all(port.isascii() and port.isdecimal() for port in ports):
            raise ValueError("each worker needs an address, HOST:PORT")
        kind, index = read["task"]["type"], read["task"]["index"]
        if kind not in cluster or index not in range(len(cluster[kind])):
            raise ValueError(f"the cluster has no {kind} {index}")
        number = index if kind == "chief" else index + len(cluster.get("chief", ()))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise UserError(f"Cannot read TF_CONFIG: {reason}. Expected {_EXAMPLE}") from None
    return Worker(number, len(addresses), tuple(addresses))
