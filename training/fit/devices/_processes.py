"""The devices and processes that train a run together: who computes what, and who writes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from training.command.errors import RunError, UserError
from training.config.schema import Config
from training.data.batches._batches import Batches
from training.runs.files import RunFiles


@dataclass(frozen=True)
class Processes:
    """One device of one process, on any backend. Subclasses have several.

    All processes must call the same methods in the same order.
    """

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

    def check_batch_size(self, config: Config) -> None:
        """Raise a UserError if the batch size is no multiple of the number of devices."""
        if config.batch_size % self.devices and not config.batch_tokens:
            near = max(1, round(config.batch_size / self.devices)) * self.devices
            raise UserError(
                f"batch_size is {config.batch_size}, but {self.devices} devices share each batch. "
                f"Use a multiple of {self.devices}, for example --set batch_size={near}"
            )

    def on_first(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function in the first process; return its result, a JSON value, in all.

        If the function raises a UserError, all processes raise it.
        """
        if self.count == 1:
            return function(*args)
        result: dict[str, Any] = {}
        failure = None
        if self.writes:
            try:
                result = {"value": function(*args)}
            except UserError as error:
                result, failure = {"error": str(error)}, error
        text = np.frombuffer(json.dumps(result).encode(), np.uint8).astype(np.int32)
        size = int(self._total(np.array([text.size * self.writes], np.int32))[0])
        sent = self._total(text if self.writes else np.zeros(size, np.int32))
        result = json.loads(bytes(sent.astype(np.uint8)))
        if failure is not None:
            raise failure
        if "error" in result:
            raise RunError(result["error"])
        return result["value"]

    def _total(self, values: np.ndarray) -> np.ndarray:
        """Return the sum of the processes' int32 arrays `(n,)` of equal size."""
        raise NotImplementedError

    def check_same(self, files: RunFiles) -> None:
        """Raise a RunError in all processes if they do not all see the same run."""
        if self.count == 1:
            return
        texts = files.config.read_bytes(), files.origin.read_bytes()
        digest = hashlib.sha256(repr((texts, [*files.all_checkpoints()])).encode()).digest()
        own = np.frombuffer(digest, np.uint8).astype(np.int32)
        if (self._total(own) != own * self.count).any():
            raise RunError(
                f"{files.path} differs between processes. Use a directory that all of them see"
            )

    @contextmanager
    def holding(self, files: RunFiles) -> Iterator[None]:
        """Hold the lock of a run, in the first process. Raises RunError as `check_same` does."""
        with ExitStack() as stack:
            self.write(lambda: stack.enter_context(files.locked()))
            self.check_same(files)
            yield

    def wait(self) -> None:
        """Wait until all processes have called this method."""
        self.on_first(lambda: None)

    def write(self, function: Callable[..., Any], *args: Any) -> None:
        """Call a function in the first process, which writes the run; all processes wait."""

        def call() -> None:
            function(*args)

        self.on_first(call)

    def scope(self) -> AbstractContextManager[Any]:
        """Return the context in which the model is made."""
        return nullcontext()

    def shared(self, model: keras.Model) -> keras.Model:
        """Return the model that trains on all devices, with the same weights."""
        return model

    def local(self) -> AbstractContextManager[Any]:
        """Return the context in which a model to score is made, with its metrics."""
        return nullcontext()

    def to_score(
        self, model: keras.Model, make: Callable[[], keras.Model]
    ) -> tuple[keras.Model, Callable[[], None]]:
        """Return a model to score in one process, and a function that updates its weights.

        Args:
            model: the model that is trained.
            make: makes another model of the same layers.
        """
        return model, lambda: None

    def epoch(self, batches: Batches, number: int) -> Any:
        """Return the batches of an epoch, as `fit` takes them."""
        if keras.backend.backend() == "tensorflow":
            return batches.dataset(number)
        return batches.epoch(number)


ALONE = Processes()
