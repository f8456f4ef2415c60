"""Runs requests: deadlines, slots that a fair queue fills, batches of several clients, metrics."""

import asyncio
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
from prometheus_client import CollectorRegistry, Gauge, Histogram

from serving.savedmodel.status import Code, StatusError, Waiting, deadline_exceeded, invalid
from serving.server.fair_queue import FairQueue
from serving.server.settings import Batching
from serving.server.tensors import Arrays

_T = TypeVar("T")
THREADS = 64  # most runs at once
_EXPENSIVE = 2**8  # a request above this cost is expensive: see `tensors.cost`
_MOST_BATCH_COST = 2**13  # most cost of a batch of several jobs
_PATIENCE_SECONDS = 1.0  # without the end of a run; then the oldest run gives up its slot
POLL_SECONDS = 0.25  # between checks whether a client still waits


class Call:
    """One request: its deadline in `seconds`, its protocol (`GRPC` or `REST`) and its client."""

    def __init__(self, seconds: float, entrypoint: str = "GRPC", client: Hashable = None):
        self.entrypoint, self.client = entrypoint, client
        self.model = ""  # its name, once it is read
        self.cancelled = self.is_expensive = False
        self._deadline = time.monotonic() + seconds

    def seconds_left(self) -> float:
        """Return the seconds until the deadline, at least 0; 0 if the client has gone."""
        return 0.0 if self.cancelled else max(0.0, self._deadline - time.monotonic())


@dataclass(eq=False)
class Part:
    """What a request brings to a run of a model, alone or in a batch.

    Args:
        model: names the model and the signature; only parts with the same name join a batch.
        run: runs the model; takes inputs, names of outputs (none for all) and the waiter.
        inputs: arrays of shape `(rows, …)` by alias.
        names: of the outputs to return; none means all.
        write: returns the response, given the outputs for the inputs.
    """

    model: Hashable
    run: Callable[[Arrays, Sequence[str], Waiting], Arrays]
    inputs: Arrays
    names: Sequence[str]
    write: Callable[[Arrays], Any]

    def answer(self, call: Call) -> Any:
        """Return the response of a run of this part alone."""
        return self.write(self.run(self.inputs, self.names, call))

    def rows(self) -> int:
        """Return the number of rows. Raises StatusError for inputs that cannot be batched."""
        sizes = {array.shape[:1] for array in self.inputs.values()}
        if () in sizes or len(sizes) != 1:
            raise invalid("Batching Run() input tensors must have equal 0th-dimension size")
        return sizes.pop()[0]

    def kind(self) -> Hashable:
        """Return what parts of one batch have in common."""
        return self.model, *((x.dtype.str, x.shape[1:]) for x in self.inputs.values())


class Job:
    """A request that waits and runs: its estimated cost, and `work`, which answers it alone.

    With a `part`, it may run in a batch instead.
    """

    def __init__(self, call: Call, cost: float, work: Callable[[], Any], part: Part | None = None):
        self.call, self.client, self.cost, self.work = call, call.client, cost, work
        self.is_expensive = call.is_expensive = cost > _EXPENSIVE
        self.part, self.rows = part, part.rows() if part else 0
        self.key = (part.kind(), self.is_expensive) if part else None
        self.response: Future[Any] = Future()
        self.arrived = time.monotonic()


@dataclass(eq=False)
class _Run:
    """One or several jobs that run together since `started`."""

    jobs: list[Job]
    started: float
    is_expensive: bool
    has_slot: bool = True

    def seconds_left(self) -> float:
        """Return the seconds until the last deadline of the jobs, at least 0."""
        return max(job.call.seconds_left() for job in self.jobs)


def _retrieve(response: asyncio.Future[Any]) -> None:
    """Retrieve an error, which asyncio would log if the caller does not wait for it any more."""
    if not response.cancelled():
        response.exception()


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
    """Runs jobs in threads, in the order of a fair queue; joins them to batches if told to.

    There are `slots` slots, and one more that no expensive job takes, so that cheap jobs do not
    wait for the end of expensive ones. If no run ends for `_PATIENCE_SECONDS` while a job waits,
    the run that is oldest gives up its slot. At most `most` jobs run or wait.

    With `batching`, a free slot takes the next job of the queue, and the next ones that may join
    it, up to `max_batch_size` rows and a cost that keeps the run short. The first of them waits
    `batch_timeout_micros` for the others.
    """

    def __init__(self, slots: int, most: int, metrics: Metrics, batching: Batching | None = None):
        self._slots, self._most, self._metrics = slots, most, metrics
        self._most_rows = batching.max_batch_size if batching else 0
        self._timeout = batching.batch_timeout_micros / 1e6 if batching else 0.0
        self._threads, self._lock = ThreadPoolExecutor(THREADS), threading.Lock()
        self._queue, self._runs = FairQueue[Job](), dict[int, _Run]()
        self._last_change, self._is_closed = 0.0, False

    def busy(self) -> int:
        """Count the jobs that run or wait."""
        return len(self._queue)

    async def run(self, job: Job) -> Any:
        """Return the response of a job, which waits for its turn.

        A job that is cancelled, or whose time ends, while it waits does not run. Raises
        StatusError: RESOURCE_EXHAUSTED if too many jobs run or wait, DEADLINE_EXCEEDED.
        """
        with self._lock:
            accepted = not self._is_closed and len(self._queue) < self._most
            if accepted:
                self._queue.add(job)
        if not accepted:
            job.response.cancel()
            message = f"The server already has {self.busy()} requests. Try again later, or raise"
            raise StatusError(Code.RESOURCE_EXHAUSTED, f"{message} --max_waiting_requests")
        self._dispatch()
        response = asyncio.wrap_future(job.response)
        response.add_done_callback(_retrieve)
        response.add_done_callback(_retrieve)
        # A timer may be early.
        wait = self._timeout + 0.001 if job.key and self._timeout else _PATIENCE_SECONDS
        try:
            async with asyncio.timeout(job.call.seconds_left()):
                while not (await asyncio.wait([response], timeout=wait))[0]:
                    self._dispatch()
                    wait = _PATIENCE_SECONDS
            return response.result()
        except TimeoutError:
            raise deadline_exceeded() from None
        except asyncio.CancelledError:
            job.call.cancelled = True
            raise
        finally:
            if job.response.cancel():  # it has not begun
                with self._lock:
                    self._queue.remove(job)

    def close(self) -> None:
        """Cancel the waiting jobs. Running jobs continue; no new job is accepted."""
        with self._lock:
            self._is_closed, waiting = True, self._queue.waiting()
        for job in waiting:
            job.response.cancel()
        self._threads.shutdown(wait=False)

    def _dispatch(self) -> None:
        """Fill the free slots with jobs of the queue."""
        with self._lock:
            while not self._is_closed and (run := self._next(time.monotonic())):
                self._runs[id(run)], self._last_change = run, run.started
                self._threads.submit(self._run, run)

    def _next(self, now: float) -> _Run | None:
        """Return the next run, None if no slot is free or no job is ready."""
        runs = list(self._runs.values())  # the oldest first
        held = [run for run in runs if run.has_slot]
        if len(held) > self._slots and now - self._last_change > _PATIENCE_SECONDS:
            held.pop(0).has_slot = False
        if len(held) > self._slots or len(runs) >= THREADS:
            return None
        only_cheap = sum(run.is_expensive for run in runs) >= self._slots
        rows, costs = Counter[Hashable](), defaultdict[Hashable, float](float)  # that wait, by key
        if self._timeout:
            for each in self._queue.waiting():
                rows[each.key] += each.rows
                costs[each.key] += each.cost

        def is_ready(job: Job) -> bool:
            if only_cheap and job.is_expensive:
                return False
            is_full = rows[job.key] >= self._most_rows or costs[job.key] >= _MOST_BATCH_COST
            return job.key is None or is_full or now - job.arrived >= self._timeout

        first = self._queue.pop(is_ready, now)
        if not first:
            return None
        run = _Run([first], now, first.is_expensive)

        def joins(job: Job) -> bool:
            together = (*run.jobs, job)
            has_room = sum(each.rows for each in together) <= self._most_rows
            is_cheap = sum(each.cost for each in together) <= _MOST_BATCH_COST
            return job.key == first.key and has_room and is_cheap

        while first.key and (other := self._queue.pop(joins, now)):
            run.jobs.append(other)
        return run

    def _run(self, run: _Run) -> None:
        """Run jobs, charge their clients and start the next run."""
        started = time.monotonic()
        jobs = [job for job in run.jobs if job.response.set_running_or_notify_cancel()]
        self._answer(jobs)
        now = time.monotonic()
        costs = {job: job.cost if job in jobs else 0.0 for job in run.jobs}
        total = sum(costs.values()) or 1.0
        with self._lock:
            del self._runs[id(run)]
            self._last_change = now
            for job, cost in costs.items():
                self._queue.settle(job, (now - started) * cost / total)
        self._dispatch()

    def _answer(self, jobs: Sequence[Job]) -> None:
        """Run jobs together and set their responses. If that fails, each runs and fails alone."""
        present = [job for job in jobs if job.call.seconds_left()]
        for job in set(jobs) - set(present):
            job.response.set_exception(deadline_exceeded())
        try:
            if present and present[0].key:
                self._run_together(present)
            elif present:
                present[0].response.set_result(present[0].work())
        except Exception as error:
            if len(present) == 1:
                present[0].response.set_exception(error)
                return
            for job in present:
                if not job.response.done():
                    self._answer([job])

    def _run_together(self, jobs: Sequence[Job]) -> None:
        """Run the joined inputs `(sum of rows, …)`; give each job its rows of the outputs."""
        now = time.monotonic()
        for job in jobs:
            self._metrics.queuing.observe((now - job.arrived) * 1e6)
        parts = [job.part for job in jobs if job.part]
        inputs = {
            alias: np.concatenate([part.inputs[alias] for part in parts])
            for alias in parts[0].inputs
        }
        outputs = parts[0].run(inputs, (), _Run(list(jobs), now, jobs[0].is_expensive))
        ends = np.cumsum([job.rows for job in jobs])  # (jobs,)
        for array in outputs.values():
            if array.shape[:1] != (ends[-1],):
                raise StatusError(
                    Code.FAILED_PRECONDITION,
                    f"Batched output tensor has shape {list(array.shape)}; its 0th dimension does "
                    "not equal the sum of the 0th dimension sizes of the input tensors",
                )
        for job, part, end in zip(jobs, parts, ends, strict=True):
            rows = slice(end - job.rows, end)
            own = {alias: array[rows] for alias, array in outputs.items()}
            job.response.set_result(part.write(own))
