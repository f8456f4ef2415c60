"""Runs requests: deadlines, slots that a fair queue fills, batches of several clients, metrics."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
from prometheus_client import CollectorRegistry, Gauge, Histogram

from serving.loaded._status import Code, Deadline, StatusError, Waiting, deadline_exceeded, invalid
from serving.server._fair_queue import FairQueue, Queued
from serving.server._settings import Batching
from serving.server._tensors import Arrays

_T = TypeVar("_T")
THREADS = 64  # most runs at once
_EXPENSIVE = 2**8  # a request above this cost is expensive: see `_tensors.cost`
_MOST_BATCH_COST = 2**13  # most cost of a batch of several requests
_PATIENCE_SECONDS = 1.0  # without the start or end of a run; then the oldest gives up its slot


@dataclass(eq=False)
class Task:
    """What a request asks of a model.

    Args:
        model: names the model and the signature; only tasks with the same name join a batch.
        run: runs the model; takes inputs and who waits, and returns the outputs by alias.
        inputs: arrays of shape `(rows, …)` by alias.
        write: returns the response, given the outputs for the inputs.
    """

    model: Hashable
    run: Callable[[Arrays, Waiting], Arrays]
    inputs: Arrays
    write: Callable[[Arrays], Any]

    def rows(self) -> int:
        """Return the number of rows. Raises StatusError for inputs that cannot be batched."""
        sizes = {array.shape[:1] for array in self.inputs.values()}
        if () in sizes or len(sizes) != 1:
            raise invalid("Batching Run() input tensors must have equal 0th-dimension size")
        return sizes.pop()[0]

    def kind(self) -> Hashable:
        """Return what tasks of one batch have in common."""
        return self.model, *((x.dtype.str, x.shape[1:]) for x in self.inputs.values())


class Call(Deadline, Queued):
    """One request, from its arrival to its response.

    Args:
        seconds: until its deadline.
        entrypoint: its protocol, `GRPC` or `REST`.
        client: its connection.
    """

    def __init__(self, seconds: float, entrypoint: str = "GRPC", client: Hashable = None):
        super().__init__(seconds)
        self.entrypoint, self.client = entrypoint, client
        self.model = ""  # its name, once it is read
        self.cost = 0.0  # estimated
        self.read: Callable[[], Task]  # set with the cost
        self.batch: Hashable = None  # what calls of one batch have in common; None: runs alone
        self.rows = 0  # in a batch
        self.arrived, self.is_cancelled = time.monotonic(), False
        self.response: Future[Any] = Future()
        held = self.held = ExitStack()  # until the response; then the model may be unloaded
        self.response.add_done_callback(lambda _: held.close())

    @property
    def is_expensive(self) -> bool:
        """Return whether the call waits for a slot of expensive calls."""
        return self.cost > _EXPENSIVE

    def seconds_left(self) -> float:
        """Return the seconds until the deadline, at least 0; 0 if the client has gone."""
        return 0.0 if self.is_cancelled else super().seconds_left()


@dataclass(eq=False)
class _Run:
    """One or several calls that run together."""

    calls: list[Call]
    has_slot: bool = True

    @property
    def is_expensive(self) -> bool:
        """Return whether the calls are expensive."""
        return self.calls[0].is_expensive

    def seconds_left(self) -> float:
        """Return the seconds until the last deadline of the calls, at least 0."""
        return max(call.seconds_left() for call in self.calls)


class Metrics:
    """Gauges and histograms, with the stock server's names. Times are microseconds."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def make(kind: Callable[..., _T], name: str, text: str, *labels: str, **more: Any) -> _T:
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


class Workers:
    """Runs calls in threads, in the order of a fair queue; joins them to batches if told to.

    There are `slots` slots. While expensive runs hold all of them, there is one more for a cheap
    run, so that cheap calls do not wait for the end of expensive ones. If no run starts or ends
    for `_PATIENCE_SECONDS` while a call waits, the oldest run gives up its slot. At most `most`
    calls run or wait.

    With `batching`, a free slot takes the next call of the queue, and the next ones that may join
    it, up to `max_batch_size` rows and a cost that keeps the run short. The first of them waits
    `batch_timeout_micros` for the others.
    """

    def __init__(self, slots: int, most: int, metrics: Metrics, batching: Batching | None = None):
        self._slots, self._most, self._metrics = slots, most, metrics
        self.most_rows = batching.max_batch_size if batching else 0
        self._timeout = batching.batch_timeout_micros / 1e6 if batching else 0.0
        self._threads, self._lock = ThreadPoolExecutor(THREADS), threading.Lock()
        self._queue, self._runs = FairQueue[Call](), list[_Run]()  # the oldest run first
        self._last_change, self._is_closed = 0.0, False

    def busy(self) -> int:
        """Count the calls that run or wait."""
        return len(self._queue)

    async def run(self, call: Call) -> Any:
        """Return the response of a call, which waits for its turn.

        A call that is cancelled, or whose time ends, while it waits does not run. Raises
        StatusError: RESOURCE_EXHAUSTED if too many calls run or wait, DEADLINE_EXCEEDED.
        """
        with self._lock:
            if self._is_closed or self.busy() >= self._most:
                message = f"The server already has {self.busy()} requests. Try again later, or "
                raise StatusError(Code.RESOURCE_EXHAUSTED, f"{message}raise --max_waiting_requests")
            self._queue.add(call)
        self._dispatch()
        response = asyncio.wrap_future(call.response)
        # The first check is for a batch, after its timeout; a timer may be early.
        wait = self._timeout + 0.001 if call.batch and self._timeout else _PATIENCE_SECONDS
        try:
            async with asyncio.timeout(call.seconds_left()):
                while not (await asyncio.wait([response], timeout=wait))[0]:
                    self._dispatch()
                    wait = _PATIENCE_SECONDS
            return response.result()
        except TimeoutError:
            raise deadline_exceeded() from None
        finally:
            call.is_cancelled = True  # a run of it may stop
            response.cancel()  # otherwise asyncio would log an error that comes later
            if call.response.cancel():  # it has not begun
                with self._lock:
                    self._queue.remove(call)

    def close(self) -> None:
        """Cancel the waiting calls. Running calls continue; no new call is accepted."""
        with self._lock:
            self._is_closed, waiting = True, self._queue.waiting()
        for call in waiting:
            call.response.cancel()
        self._threads.shutdown(wait=False)

    def _dispatch(self) -> None:
        """Fill the free slots with calls of the queue."""
        with self._lock:
            while not self._is_closed and (calls := self._next(time.monotonic())):
                self._runs.append(run := _Run(calls))
                self._last_change = calls[0].started
                self._threads.submit(self._run, run)

    def _next(self, now: float) -> list[Call]:
        """Return the calls of the next run, none if no slot is free or no call is ready."""
        held = [run for run in self._runs if run.has_slot]
        if len(held) >= self._slots and now - self._last_change > _PATIENCE_SECONDS:
            held.pop(0).has_slot = False
        only_cheap = sum(run.is_expensive for run in held) >= self._slots
        if len(held) >= self._slots + only_cheap or len(self._runs) >= THREADS:
            return []
        rows = Counter[Hashable]()  # that wait, by batch
        for call in self._queue.waiting() if self._timeout else ():
            rows[call.batch] += call.rows

        def is_ready(call: Call) -> bool:
            if only_cheap and call.is_expensive:
                return False
            is_full = rows[call.batch] >= self.most_rows
            return call.batch is None or is_full or now - call.arrived >= self._timeout

        def joins(call: Call) -> bool:
            together = (*calls, call)
            return (
                call.batch == calls[0].batch
                and sum(each.rows for each in together) <= self.most_rows
                and sum(each.cost for each in together) <= _MOST_BATCH_COST
            )

        first = self._queue.pop(is_ready, now)
        calls = [first] if first else []
        while first and first.batch and (other := self._queue.pop(joins, now)):
            calls.append(other)
        return calls

    def _run(self, run: _Run) -> None:
        """Run calls, charge their clients and start the next run."""
        calls = [
            call
            for call in run.calls
            if call.seconds_left() and call.response.set_running_or_notify_cancel()
        ]
        self._respond(calls)
        now = time.monotonic()
        seconds, total = now - run.calls[0].started, sum(call.cost for call in calls) or 1.0
        with self._lock:
            self._runs.remove(run)
            self._last_change = now
            for call in run.calls:
                share = call.cost / total if call in calls else 0.0
                self._queue.settle(call, seconds * share)
        self._dispatch()

    def _respond(self, calls: list[Call]) -> None:
        """Run calls together and set their responses. If that fails, each runs and fails alone."""
        try:
            if calls and calls[0].batch:
                self._run_together(calls)
            elif calls:
                task = calls[0].read()
                calls[0].response.set_result(task.write(task.run(task.inputs, calls[0])))
        except Exception as error:
            if len(calls) == 1:
                calls[0].response.set_exception(error)
                return
            for call in calls:
                if not call.response.done():
                    self._respond([call])

    def _run_together(self, calls: list[Call]) -> None:
        """Run the joined inputs `(sum of rows, …)`; give each call its rows of the outputs."""
        for call in calls:
            self._metrics.queuing.observe((time.monotonic() - call.arrived) * 1e6)
        tasks = [call.read() for call in calls]
        inputs = {
            alias: np.concatenate([task.inputs[alias] for task in tasks])
            for alias in tasks[0].inputs
        }
        outputs = tasks[0].run(inputs, _Run(calls))
        ends = np.cumsum([call.rows for call in calls])  # (calls,)
        for array in outputs.values():
            if array.shape[:1] != (ends[-1],):
                raise StatusError(
                    Code.FAILED_PRECONDITION,
                    f"Batched output tensor has shape {list(array.shape)}; its 0th dimension does "
                    "not equal the sum of the 0th dimension sizes of the input tensors",
                )
        for call, task, end in zip(calls, tasks, ends, strict=True):
            rows = slice(end - call.rows, end)
            own = {alias: array[rows] for alias, array in outputs.items()}
            call.response.set_result(task.write(own))
