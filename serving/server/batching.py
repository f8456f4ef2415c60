"""Requests of several clients run together, as TensorFlow Serving's batching does.

The first request of a batch waits until the batch is full, or old enough, and until one of the
places for runs is free; meanwhile others join. Then its thread runs the batch for all of them.
"""

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field

import numpy as np

from serving.savedmodel.status import Code, StatusError, invalid
from serving.server.calls import Call, Metrics, deadline_exceeded
from serving.server.config_files import Batching
from serving.server.tensors import Arrays

Run = Callable[[Arrays, Sequence[str], float], Arrays]


@dataclass(eq=False)
class _Request:
    inputs: Arrays
    rows: int
    call: Call
    arrived: float = field(default_factory=time.monotonic)
    answer: Future[Arrays] = field(default_factory=Future)


@dataclass(eq=False)
class _Batch:
    requests: list[_Request] = field(default_factory=list)
    rows: int = 0
    full: threading.Event = field(default_factory=threading.Event)


class Batcher:
    """Joins requests. Threads share it."""

    def __init__(self, parameters: Batching, metrics: Metrics):
        self._parameters = parameters
        self._metrics = metrics
        self._lock = threading.Lock()
        self._open: dict[Hashable, _Batch] = {}
        self._waiting = 0  # batches
        self._places = threading.Semaphore(parameters.num_batch_threads)

    def run(self, key: Hashable, run: Run, inputs: Arrays, call: Call) -> Arrays:
        """Run `inputs` in a batch with others of the same `key`.

        Args:
            key: of the model and signature; requests of one key and shape have the same `run`.
            run: runs a batch (inputs, outputs, seconds left).
            inputs: arrays whose first dimension is the rows.
            call: the request; a late one is not run.

        Returns the rows that belong to `inputs`. Raises StatusError: INVALID_ARGUMENT for inputs
        that cannot be batched, UNAVAILABLE where too many batches wait, DEADLINE_EXCEEDED.
        """
        request = _Request(inputs, _rows(inputs), call)
        most = self._parameters.max_batch_size
        if request.rows > most:
            raise invalid(
                f"Task size {request.rows} is larger than maximum input batch size {most}"
            )
        key = (key, *((array.dtype.str, array.shape[1:]) for array in inputs.values()))
        batch, is_first = self._join(key, request)
        if is_first:
            batch.full.wait(self._parameters.batch_timeout_micros / 1e6)
            has_place = False
            while not has_place and (
                seconds := max(each.call.seconds_left for each in batch.requests)
            ):
                has_place = self._places.acquire(timeout=seconds)
            self._close(key, batch)
            if has_place:
                self._run(run, batch.requests)
                self._places.release()
        try:
            return request.answer.result(call.seconds_left)
        except FutureTimeoutError:
            raise deadline_exceeded() from None

    def _join(self, key: Hashable, request: _Request) -> tuple[_Batch, bool]:
        """Add a request to the open batch, or to a new one, whose first request it is."""
        with self._lock:
            batch = self._open.get(key)
            is_first = not batch or batch.rows + request.rows > self._parameters.max_batch_size
            if is_first:
                if self._waiting >= self._parameters.max_enqueued_batches:
                    raise StatusError(
                        Code.UNAVAILABLE,
                        "The batch scheduling queue to which this task was submitted is full",
                    )
                if batch:
                    batch.full.set()
                batch = self._open[key] = _Batch()
                self._waiting += 1
            assert batch
            batch.requests.append(request)
            batch.rows += request.rows
            if batch.rows >= self._parameters.max_batch_size:
                batch.full.set()
            return batch, is_first

    def _close(self, key: Hashable, batch: _Batch) -> None:
        with self._lock:
            self._waiting -= 1
            if self._open.get(key) is batch:
                del self._open[key]

    def _run(self, run: Run, requests: Sequence[_Request]) -> None:
        """Answer the requests of a batch. If it fails, each is run alone and fails alone."""
        present = [request for request in requests if request.call.seconds_left]
        try:
            if present:
                self._run_together(run, present)
        except Exception as error:
            if len(present) == 1:
                present[0].answer.set_exception(error)
                return
            for request in present:
                self._run(run, [request])

    def _run_together(self, run: Run, requests: Sequence[_Request]) -> None:
        for request in requests:
            self._metrics.queuing.observe((time.monotonic() - request.arrived) * 1e6)
        inputs = {
            alias: np.concatenate([request.inputs[alias] for request in requests])
            for alias in requests[0].inputs
        }
        outputs = run(inputs, (), max(request.call.seconds_left for request in requests))
        ends = np.cumsum([request.rows for request in requests])
        for array in outputs.values():
            if array.shape[:1] != (ends[-1],):
                raise StatusError(
                    Code.FAILED_PRECONDITION,
                    f"Batched output tensor has shape {list(array.shape)}; its 0th dimension does "
                    "not equal the sum of the 0th dimension sizes of the input tensors",
                )
        for request, end in zip(requests, ends, strict=True):
            rows = slice(end - request.rows, end)
            request.answer.set_result({alias: array[rows] for alias, array in outputs.items()})


def _rows(inputs: Arrays) -> int:
    sizes = {array.shape[:1] for array in inputs.values()}
    if () in sizes or len(sizes) != 1:
        raise invalid("Batching Run() input tensors must have equal 0th-dimension size")
    return sizes.pop()[0]
