"""Which of several processes this one is, from the environment variables of the backend.

TensorFlow's processes are in TF_CONFIG, a JSON object; JAX's in JAX_NUM_PROCESSES, JAX_PROCESS_ID
and JAX_COORDINATOR_ADDRESS. Kubeflow Trainer and other launchers set them. This module imports no
backend, so that a mistake is reported at once.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any

from training.command.errors import UserError

JOINING_SECONDS = 300  # longest wait for all processes to start
_EXAMPLE = '{"cluster": {"worker": ["HOST:PORT", …]}, "task": {"type": "worker", "index": 0}}'


@dataclass(frozen=True)
class Worker:
    """One of the processes that train a run together."""

    number: int = 0  # of this process, from 0; the first process writes the run
    count: int = 1  # of processes
    addresses: tuple[str, ...] = ()  # HOST:PORT: on TensorFlow of all processes, on JAX of one

    @classmethod
    def here(cls, backend: str) -> Worker:
        """Return which process this one is, on "tensorflow", "jax" or "torch".

        Raises UserError for variables that cannot be read, or several processes on PyTorch.
        """
        on_jax, on_tensorflow = _of_jax(), _of_tensorflow()
        if backend == "jax":
            return on_jax if on_jax.count == 1 else replace(on_jax, addresses=(_coordinator(),))
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


def _coordinator() -> str:
    """Return the address of JAX's first process; Kubeflow sets its port in another variable."""
    address = os.environ.get("JAX_COORDINATOR_ADDRESS", "")
    if ":" not in address and (port := os.environ.get("JAX_COORDINATOR_PORT")):
        address += f":{port}"
    if not _is_address(address):
        raise UserError.expected("JAX_COORDINATOR_ADDRESS", "HOST:PORT", repr(address))
    return address


def _number(name: str, default: int) -> int:
    text = os.environ.get(name) or str(default)
    if not (text.isascii() and text.isdecimal()):
        raise UserError(f"{name} must be a whole number. It is {text!r}")
    return int(text)


def _is_address(value: object) -> bool:
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    is_host = bool(re.fullmatch(r"[\w.-]+|\[[\w:.%]+\]", host))
    return is_host and port.isascii() and port.isdecimal() and 0 < int(port) < 2**16


def _of_tensorflow() -> Worker:
    """Return the process of TF_CONFIG: the chief, if there is one, comes before the workers."""
    try:
        return _read(json.loads(os.environ.get("TF_CONFIG") or "{}"))
    except ValueError as error:
        raise UserError(f"Cannot read TF_CONFIG: {error}. Expected {_EXAMPLE}") from None


def _read(config: Any) -> Worker:
    """Return the process of a parsed TF_CONFIG. Raises ValueError with the reason if it cannot."""
    if not isinstance(config, dict):
        raise ValueError("it is no JSON object")
    cluster, task = config.get("cluster"), config.get("task")
    if not cluster:
        return Worker()
    if not isinstance(cluster, dict):
        raise ValueError("cluster is no JSON object")
    if unused := sorted(set(cluster) - {"chief", "worker"}):
        raise ValueError(f"the cluster has {', '.join(unused)}; only chief and worker train")
    addresses = []
    for role in ("chief", "worker"):
        listed = cluster.get(role, [])
        if not isinstance(listed, list) or not all(map(_is_address, listed)):
            raise ValueError(f"{role} needs a list of addresses, HOST:PORT")
        addresses += listed
    if twice := sorted({each for each in addresses if addresses.count(each) > 1}):
        raise ValueError(f"{twice[0]} is the address of two processes")
    if len(cluster.get("chief", [])) > 1:
        raise ValueError("there is more than one chief")
    if not isinstance(task, dict):
        raise ValueError("task is missing, or no JSON object")
    kind, index = task.get("type"), task.get("index")
    if type(index) is not int:
        raise ValueError(f"index must be a whole number. It is {index!r}")
    if kind not in [*cluster] or not 0 <= index < len(cluster[kind]):
        raise ValueError(f"the cluster has no {kind} {index}")
    number = index if kind == "chief" else index + len(cluster.get("chief", []))
    return Worker(number, len(addresses), tuple(addresses))
