"""Requests under way: deadlines, threads and metrics; and those of several clients run together."""

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
# A request of more is heavy: by `tensors.cost`, or already by the bytes of its message.
LIGHT_COST, _LIGHT_BYTES = 2**8, 2**16
THREADS, _HEAVY_ROWS = 64, 64  # the second: of a batch of several requests
_MOST_CLIENTS = 2**12  # whose shares are known; then all begin anew
_PATIENCE_SECONDS = 1.0  # until a light request no longer waits for runs that last
POLL_SECONDS = 0.25  # between looks whether anybody waits still


class HeavyError(Exception):
    """A request turned out to cost so much: it begins again, among the heavy ones."""


class Call:
    """One request: its seconds until the deadline, protocol, `GRPC` or `REST`, and connection."""

    def __init__(self, seconds: float, entrypoint: str = "GRPC", client: Hashable = None):
        self.entrypoint, self.client = entrypoint, client
        self.cancelled = self.is_heavy = False
        self._deadline = time.monotonic() + seconds

    def seconds_left(self) -> float:
        """Seconds until the deadline, at least 0, and 0 when the client has gone."""
        return 0.0 if self.cancelled else max(0.0, self._deadline - time.monotonic())


class _Line:
    """Runs requests, `places` at once, or more where each lasts; `busy` of them run or wait.

    The next is chosen by fair queueing: a request ends, in units of cost, where its client's last
    one ended and its own cost later; the earliest end is next. A client that had nothing begins at
    the present, which goes on by the cost of each run divided among those that wait.
    """

    def __init__(self, threads: int, places: int):
        self.threads, self._places = ThreadPoolExecutor(threads), threading.Semaphore(places)
        self._lock, self.busy = threading.Lock(), 0
        self._waiting: list[tuple[float, int, float, Callable[[], Any], Future[Any]]] = []
        self._ends: dict[Hashable, float] = {}
        self._numbers, self._present = itertools.count(), 0.0

    def submit(self, client: Hashable, cost: float, work: Callable[[], T]) -> Future[T]:
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
        has_place = self._places.acquire(timeout=_PATIENCE_SECONDS)
        with self._lock:
            if has_next := bool(self._waiting):  # else one was cancelled
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
        with self._lock:
            self.busy -= 1
            if future.cancelled():
                self._waiting = [each for each in self._waiting if each[-1] is not future]
                heapq.heapify(self._waiting)


class Workers:
    """Light requests in `places` and one, in others heavy ones; at most `most` run or wait."""

    def __init__(self, places: int, most: int):
        self._light, self._heavy = _Line(THREADS, places + 1), _Line(places, places)
        self._most = most

    def busy(self) -> int:
        """Count the requests that run or wait."""
        return self._light.busy + self._heavy.busy

    async def run(self, work: Callable[[], T], call: Call, size: int) -> T:
        """Return `work()`, run in one of the threads, for a message of `size` bytes.

        A request that is cancelled while it waits is not run. Raises StatusError
        RESOURCE_EXHAUSTED where too many wait.
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
        """Cancel waiting requests. Running ones continue; no new ones may follow."""
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
        """Seconds until nobody waits for it any more."""
        return max(request.call.seconds_left() for request in self.requests)


class Batcher:
    """Joins requests, as TensorFlow Serving's batching does. Threads share it.

    The first request of a batch waits until the batch is full, or old enough, and until one of the
    places for runs is free; meanwhile others join. Then its thread runs the batch for all of them.
    Heavy requests have batches and places of their own.
    """

    def __init__(self, parameters: Batching, metrics: Metrics):
        self._parameters, self._metrics, self._lock = parameters, metrics, threading.Lock()
        self._open: dict[Hashable, _Batch] = {}
        self._places = [threading.Semaphore(parameters.num_batch_threads) for _ in range(2)]

    def run(self, key: Hashable, run: Run, inputs: Arrays, call: Call) -> Arrays:
        """Run `inputs` in a batch with others of the same `key`, of the model and signature.

        `run` runs a batch (inputs, outputs, who waits). A late call is not run. Returns the rows
        that belong to `inputs`. Raises StatusError: INVALID_ARGUMENT for inputs that cannot be
        batched, DEADLINE_EXCEEDED.
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
                if not each.answer.done():  # nobody waited for it
                    each.answer.set_exception(deadline_exceeded())
        try:
            return request.answer.result(call.seconds_left())
        except TimeoutError:
            raise deadline_exceeded() from None

    def _join(self, key: Hashable, request: _Request) -> _Batch:
        """Add a request to the open batch, or to a new one where it does not fit."""
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
