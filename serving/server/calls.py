"""Requests under way: deadlines, threads and metrics; and those of several clients run together."""

import asyncio
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from prometheus_client import CollectorRegistry, Gauge, Histogram

from serving.savedmodel.status import Code, StatusError, Waiting, invalid
from serving.server.settings import Batching
from serving.server.tensors import Arrays

T = TypeVar("T")
Run = Callable[[Arrays, Sequence[str], Waiting], Arrays]
# A request of more is heavy: by `tensors.cost`, or already by the bytes of its message.
LIGHT_COST, _LIGHT_BYTES = 2**11, 2**16
_HEAVY_ROWS = 64  # of a batch of several requests
POLL_SECONDS = 0.25  # between looks whether anybody waits still


class HeavyError(Exception):
    """A request turned out to be heavy: it begins again, among those, and is counted then."""

    code = None


class Call:
    """One request: its seconds until the deadline, and its protocol, `GRPC` or `REST`."""

    def __init__(self, seconds: float, entrypoint: str = "GRPC"):
        self.entrypoint = entrypoint
        self.cancelled = self.is_heavy = False
        self._deadline = time.monotonic() + seconds

    def seconds_left(self) -> float:
        """Seconds until the deadline, at least 0, and 0 when the client has gone."""
        return 0.0 if self.cancelled else max(0.0, self._deadline - time.monotonic())

    def check(self) -> None:
        """Raise StatusError CANCELLED or DEADLINE_EXCEEDED if nobody waits any more."""
        if self.cancelled:
            raise StatusError(Code.CANCELLED, "The client has gone")
        if not self.seconds_left():
            raise deadline_exceeded()


def deadline_exceeded() -> StatusError:
    """The error of a request whose time is over."""
    return StatusError(Code.DEADLINE_EXCEEDED, "Timed out waiting for notification")


class Workers:
    """Threads that answer requests, of which so many more may wait; `busy` run or wait now.

    Heavy requests have `heavy` threads of their own: others do not wait for them.
    """

    def __init__(self, threads: int, waiting: int, heavy: int):
        self._light, self._heavy = ThreadPoolExecutor(threads), ThreadPoolExecutor(heavy)
        self._most = threads + waiting
        self._lock = threading.Lock()
        self.busy = 0

    async def run(self, work: Callable[[], T], call: Call, size: int) -> T:
        """Return `work()`, run in one of the threads, for a message of `size` bytes.

        A request that is cancelled while it waits is not run. Raises StatusError
        RESOURCE_EXHAUSTED where too many wait.
        """
        if size <= _LIGHT_BYTES:
            with suppress(HeavyError):
                return await self._run(self._light, work, call)
        call.is_heavy = True
        return await self._run(self._heavy, work, call)

    async def _run(self, pool: ThreadPoolExecutor, work: Callable[[], T], call: Call) -> T:
        with self._lock:
            if self.busy >= self._most:
                message = f"The server is overloaded: {self.busy} requests are under way"
                raise StatusError(Code.RESOURCE_EXHAUSTED, message)
            self.busy += 1
        future = pool.submit(work)
        future.add_done_callback(self._end)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            call.cancelled = True
            raise

    def _end(self, _: Future[T]) -> None:
        with self._lock:
            self.busy -= 1

    def close(self) -> None:
        """Cancel waiting requests. Running ones continue; no new ones may follow."""
        self._light.shutdown(wait=False, cancel_futures=True)
        self._heavy.shutdown(wait=False, cancel_futures=True)


class Metrics:
    """Gauges and histograms, with the stock server's names. Times are microseconds."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def make(kind: Callable[..., T], name: str, text: str, *labels: str, **more: Any) -> T:
            return kind(f":tensorflow:serving:{name}", text, labels, registry=self.registry, **more)

        def times(name: str, text: str, *labels: str) -> Histogram:
            buckets = [10 * 1.8**power for power in range(33)]  # up to 20 minutes
            return make(Histogram, name, text, *labels, buckets=buckets)

        # prometheus_client adds `_total` to the name of a Counter; the stock server has none.
        self.requests = make(Gauge, "request_count", "Requests.", "model_name", "status")
        self.loaded = make(Gauge, "model_version_loaded", "1: it answers.", "model_name", "version")
        self.in_flight = make(Gauge, "requests_in_flight", "Requests that run or wait.")
        by_api = "model_name", "API"
        self.latency = times("request_latency", "Time of requests.", *by_api, "entrypoint")
        self.runtime = times("runtime_latency", "Time of runs.", *by_api)
        self.queuing = times("batching_session:queuing_latency", "Wait for a batch.")


@dataclass(eq=False)
class _Request:
    inputs: Arrays
    rows: int
    call: Call
    arrived: float = field(default_factory=time.monotonic)
    answer: Future[Arrays] = field(default_factory=Future)


@dataclass(eq=False)
class _Batch:
    is_heavy: bool
    requests: list[_Request] = field(default_factory=list)
    rows: int = 0
    full: threading.Event = field(default_factory=threading.Event)

    def seconds_left(self) -> float:
        """Seconds until nobody waits for it any more."""
        return max(request.call.seconds_left() for request in self.requests)


class Batcher:
    """Joins requests, as TensorFlow Serving's batching does. Threads share it.

    The first request of a batch waits until the batch is full, or old enough, and until one of the
    places for runs is free; meanwhile others join. Then its thread runs the batch for all of them.
    Heavy requests have batches and places of their own.
    """

    def __init__(self, parameters: Batching, metrics: Metrics):
        self._parameters = parameters
        self._metrics = metrics
        self._lock = threading.Lock()
        self._open: dict[Hashable, _Batch] = {}
        self._places = [threading.Semaphore(parameters.num_batch_threads) for _ in range(2)]

    def run(self, key: Hashable, run: Run, inputs: Arrays, call: Call) -> Arrays:
        """Run `inputs` in a batch with others of the same `key`, of the model and signature.

        `run` runs a batch (inputs, outputs, who waits). A late call is not run. Returns the rows
        that belong to `inputs`. Raises StatusError: INVALID_ARGUMENT for inputs that cannot be
        batched, DEADLINE_EXCEEDED.
        """
        request = _Request(inputs, _rows(inputs), call)
        most = self._parameters.max_batch_size
        if request.rows > most:
            raise invalid(
                f"Task size {request.rows} is larger than maximum input batch size {most}"
            )
        key = (
            key,
            call.is_heavy,
            *((array.dtype.str, array.shape[1:]) for array in inputs.values()),
        )
        batch = self._join(key, request)
        if batch.requests[0] is request:
            batch.full.wait(self._parameters.batch_timeout_micros / 1e6)
            has_place, places = False, self._places[call.is_heavy]
            while not has_place and (seconds := batch.seconds_left()):
                has_place = places.acquire(timeout=min(seconds, POLL_SECONDS))
            with self._lock:
                if self._open.get(key) is batch:
                    del self._open[key]
            if has_place:
                self._run(run, batch.requests)
                places.release()
            for each in batch.requests:
                if not each.answer.done():  # nobody waited for it
                    each.answer.set_exception(deadline_exceeded())
        try:
            return request.answer.result(call.seconds_left())
        except FutureTimeoutError:
            raise deadline_exceeded() from None

    def _join(self, key: Hashable, request: _Request) -> _Batch:
        """Add a request to the open batch, or to a new one where it does not fit."""
        most, heavy = self._parameters.max_batch_size, request.call.is_heavy
        most = min(most, _HEAVY_ROWS) if heavy else most
        with self._lock:
            batch = self._open.get(key)
            if not batch or batch.rows + request.rows > most:
                if batch:
                    batch.full.set()
                batch = self._open[key] = _Batch(heavy)
            batch.requests.append(request)
            batch.rows += request.rows
            if batch.rows >= most:
                batch.full.set()
            return batch

    def _run(self, run: Run, requests: Sequence[_Request]) -> None:
        """Answer the requests of a batch. If it fails, each is run alone and fails alone."""
        present = [request for request in requests if request.call.seconds_left()]
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
        outputs = run(inputs, (), _Batch(requests[0].call.is_heavy, list(requests)))
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
