"""Runs requests: deadlines, a fair queue for threads, batches of several clients, and metrics."""

import asyncio
import heapq
import itertools
import math
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
from prometheus_client import CollectorRegistry, Gauge, Histogram

from serving.savedmodel.status import Code, StatusError, Waiting, deadline_exceeded, invalid
from serving.server.settings import Batching
from serving.server.tensors import Arrays, check_rows

T = TypeVar("T")
Run = Callable[[Arrays, Sequence[str], Waiting], Arrays]
# A request above either limit is heavy: by `tensors.cost`, or by the bytes of its message.
LIGHT_COST, _LIGHT_BYTES = 2**8, 2**16
THREADS, _HEAVY_ROWS = 64, 64  # light threads; most rows of a batch that joins heavy requests
_MOST_CLIENTS = 2**12  # clients whose virtual times are kept; above it, all are forgotten
_PATIENCE_SECONDS = 1.0  # then a waiting request runs without a free place
POLL_SECONDS = 0.25  # between checks whether a client still waits


class HeavyError(Exception):
    """A light request turned out to have this cost: it restarts in the queue of heavy requests."""


class Call:
    """One request: its deadline in `seconds`, its protocol (`GRPC` or `REST`) and its client."""

    def __init__(self, seconds: float, entrypoint: str = "GRPC", client: Hashable = None):
        self.entrypoint, self.client = entrypoint, client
        self.cancelled = self.is_heavy = False
        self._deadline = time.monotonic() + seconds

    def seconds_left(self) -> float:
        """Return the seconds until the deadline, at least 0; 0 if the client has gone."""
        return 0.0 if self.cancelled else max(0.0, self._deadline - time.monotonic())


class _Line:
    """A fair queue: `places` requests run at once, and `busy` requests run or wait.

    A request that has waited `_PATIENCE_SECONDS` for a place runs without one if a thread is free.

    The queue is fair among clients, by fair queueing in virtual time, whose unit is cost. A request
    starts where its client's previous request ends, but not before the present, and ends `cost`
    later. The request with the earliest end runs next. A run advances the present by its cost
    divided by the number of requests that waited with it, and at least to its own start.
    """

    def __init__(self, threads: int, places: int):
        self.threads, self._places = ThreadPoolExecutor(threads), threading.Semaphore(places)
        self._lock, self.busy = threading.Lock(), 0
        self._waiting: list[tuple[float, int, float, Callable[[], Any], Future[Any]]] = []
        self._ends: dict[Hashable, float] = {}
        self._numbers, self._present = itertools.count(), 0.0

    def submit(self, client: Hashable, cost: float, work: Callable[[], T]) -> Future[T]:
        """Return the future result of `work()`, which waits in the queue until its turn."""
        future: Future[T] = Future()
        future.add_done_callback(self._end)
        with self._lock:
            self.busy += 1
            if not self._waiting or len(self._ends) >= _MOST_CLIENTS:
                self._ends.clear()
            self._ends[client] = end = max(self._present, self._ends.get(client, 0.0)) + cost
            heapq.heappush(self._waiting, (end, next(self._numbers), cost, work, future))
        self.threads.submit(self._run_next)
        return future

    def _run_next(self) -> None:
        """Run the waiting request with the earliest virtual end."""
        has_place = self._places.acquire(timeout=_PATIENCE_SECONDS)
        with self._lock:
            if has_next := bool(self._waiting):  # empty if a request was cancelled
                end, _, cost, work, future = heapq.heappop(self._waiting)
                self._present = max(self._present + cost / (len(self._waiting) + 1), end - cost)
        if has_next and future.set_running_or_notify_cancel():
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)
        if has_place:
            self._places.release()

    def _end(self, future: Future[Any]) -> None:
        """Count a request as done; if it was cancelled, remove it from the queue."""
        with self._lock:
            self.busy -= 1
            if future.cancelled():
                self._waiting = [each for each in self._waiting if each[-1] is not future]
                heapq.heapify(self._waiting)


class Workers:
    """Two queues: light requests have `places` + 1 places, heavy requests have `places`.

    At most `most` requests run or wait.
    """

    def __init__(self, places: int, most: int):
        self._light, self._heavy = _Line(THREADS, places + 1), _Line(places, places)
        self._most = most

    def busy(self) -> int:
        """Count the requests that run or wait."""
        return self._light.busy + self._heavy.busy

    async def run(self, work: Callable[[], T], call: Call, size: int) -> T:
        """Return `work()`, which runs in a thread, for a request of `size` bytes.

        A request that is cancelled while it waits does not run. Raises StatusError
        RESOURCE_EXHAUSTED if too many requests run or wait.
        """
        if size <= _LIGHT_BYTES:
            try:
                return await self._run(self._light, work, call, size)
            except HeavyError as error:
                (size,) = error.args
        call.is_heavy = True
        return await self._run(self._heavy, work, call, size)

    async def _run(self, line: _Line, work: Callable[[], T], call: Call, cost: int) -> T:
        if (busy := self.busy()) >= self._most:
            message = f"The server is overloaded: {busy} requests are under way"
            raise StatusError(Code.RESOURCE_EXHAUSTED, message)
        try:
            return await asyncio.wrap_future(line.submit(call.client, cost, work))
        except asyncio.CancelledError:
            call.cancelled = True
            raise

    def close(self) -> None:
        """Cancel the waiting requests. Running requests continue; submit no new requests."""
        for line in (self._light, self._heavy):
            line.threads.shutdown(wait=False, cancel_futures=True)


class Metrics:
    """Gauges and histograms, with the stock server's names. Times are microseconds."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def make(kind: Callable[..., T], name: str, text: str, *labels: str, **more: Any) -> T:
            return kind(f":tensorflow:serving:{name}", text, labels, registry=self.registry, **more)

        # prometheus_client adds `_total` to the name of a Counter; the stock server has none.
        self.requests = make(Gauge, "request_count", "Requests.", "model_name", "status")
        self.loaded = make(Gauge, "model_version_loaded", "1: it answers.", "model_name", "version")
        self.in_flight = make(Gauge, "requests_in_flight", "Requests that run or wait.")
        times = partial(make, Histogram, buckets=[10 * 1.8**n for n in range(33)])  # to 20 minutes
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
        """Return the seconds until the last deadline of the batch's requests, at least 0."""
        return max(request.call.seconds_left() for request in self.requests)


class Batcher:
    """Joins requests to batches, as TensorFlow Serving's batching does. Threads may share it.

    The thread of a batch's first request waits until the batch is full or its timeout is over, then
    until a place for runs is free. Meanwhile other requests join the batch. The thread then runs
    the batch for all its requests. Heavy requests have their own batches and places.
    """

    def __init__(self, parameters: Batching, metrics: Metrics):
        self._parameters, self._metrics, self._lock = parameters, metrics, threading.Lock()
        self._open: dict[Hashable, _Batch] = {}
        self._places = [threading.Semaphore(parameters.num_batch_threads) for _ in range(2)]

    def run(self, key: Hashable, run: Run, inputs: Arrays, call: Call) -> Arrays:
        """Return the outputs for `inputs`, computed in a batch with other requests.

        Args:
            key: names the model and the signature; requests of one batch have the same key.
            run: runs a batch; takes its inputs, names of outputs (none for all) and the waiter.
            inputs: arrays of shape `(rows, …)` by alias.
            call: the request; after its deadline it does not run.

        Raises StatusError: INVALID_ARGUMENT for inputs that cannot be batched, DEADLINE_EXCEEDED.
        """
        request = _Request(inputs, _rows(inputs), call)
        check_rows(request.rows, self._parameters.max_batch_size)
        kinds = ((array.dtype.str, array.shape[1:]) for array in inputs.values())
        key = (key, call.is_heavy, *kinds)
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
                if not each.answer.done():  # no client waited for a place
                    each.answer.set_exception(deadline_exceeded())
        try:
            return request.answer.result(call.seconds_left())
        except TimeoutError:
            raise deadline_exceeded() from None

    def _join(self, key: Hashable, request: _Request) -> _Batch:
        """Return the batch that a request joins: the open batch if it fits, else a new one."""
        heavy = request.call.is_heavy
        most = min(self._parameters.max_batch_size, _HEAVY_ROWS if heavy else math.inf)
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
        """Run a batch and answer its requests. If it fails, each request runs and fails alone."""
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
        """Run the joined inputs `(sum of rows, …)`; give each request its rows of the outputs."""
        for request in requests:
            self._metrics.queuing.observe((time.monotonic() - request.arrived) * 1e6)
        inputs = {
            alias: np.concatenate([request.inputs[alias] for request in requests])
            for alias in requests[0].inputs
        }
        outputs = run(inputs, (), _Batch(requests[0].call.is_heavy, list(requests)))
        ends = np.cumsum([request.rows for request in requests])  # (requests,)
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
    """Return the number of rows, on which all inputs must agree. Raises StatusError."""
    sizes = {array.shape[:1] for array in inputs.values()}
    if () in sizes or len(sizes) != 1:
        raise invalid("Batching Run() input tensors must have equal 0th-dimension size")
    return sizes.pop()[0]
