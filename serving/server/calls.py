"""Requests under way: their deadlines, the threads that answer them, and their metrics."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Gauge, Histogram

from serving.savedmodel.status import Code, StatusError

T = TypeVar("T")


class Call:
    """One request.

    Args:
        seconds: until its deadline.
        entrypoint: the protocol that it came by, `GRPC` or `REST`.
    """

    def __init__(self, seconds: float, entrypoint: str = "GRPC"):
        self.entrypoint = entrypoint
        self.cancelled = False
        self._deadline = time.monotonic() + seconds

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline, at least 0."""
        return max(0.0, self._deadline - time.monotonic())

    def check(self) -> None:
        """Raise StatusError CANCELLED or DEADLINE_EXCEEDED if nobody waits any more."""
        if self.cancelled:
            raise StatusError(Code.CANCELLED, "The client has gone")
        if not self.seconds_left:
            raise deadline_exceeded()


def deadline_exceeded() -> StatusError:
    """The error of a request whose time is over."""
    return StatusError(Code.DEADLINE_EXCEEDED, "Timed out waiting for notification")


class Workers:
    """Threads that answer requests; further requests wait for one, up to a number.

    Args:
        threads: their number.
        waiting: requests that may wait.

    Attributes:
        busy: requests that run or wait.
    """

    def __init__(self, threads: int, waiting: int):
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="request")
        self._most = threads + waiting
        self._lock = threading.Lock()
        self.busy = 0

    async def run(self, work: Callable[[], T], call: Call) -> T:
        """Return `work()`, run in one of the threads.

        A request that is cancelled while it waits is not run. Raises StatusError
        RESOURCE_EXHAUSTED where too many wait.
        """
        with self._lock:
            if self.busy >= self._most:
                message = f"The server is overloaded: {self.busy} requests are under way"
                raise StatusError(Code.RESOURCE_EXHAUSTED, message)
            self.busy += 1
        future = self._pool.submit(work)
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
        self._pool.shutdown(wait=False, cancel_futures=True)


class Metrics:
    """Gauges and histograms, with the stock server's names. Times are microseconds."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def make(kind: Callable[..., T], name: str, text: str, *labels: str, **more: Any) -> T:
            return kind(f":tensorflow:serving:{name}", text, labels, registry=self.registry, **more)

        times: dict[str, Any] = {"buckets": [10 * 1.8**power for power in range(33)]}  # 20 minutes
        by_version = "model_name", "version"
        # prometheus_client adds `_total` to the name of a Counter; the stock server has none.
        self.requests = make(Gauge, "request_count", "Requests.", "model_name", "status")
        self.loaded = make(Gauge, "model_version_loaded", "1: it answers.", *by_version)
        self.in_flight = make(Gauge, "requests_in_flight", "Requests that run or wait.")
        by_api = "model_name", "API"
        latency = "request_latency", "Time of requests.", *by_api, "entrypoint"
        self.latency = make(Histogram, *latency, **times)
        self.runtime = make(Histogram, "runtime_latency", "Time of runs.", *by_api, **times)
        queuing = "batching_session:queuing_latency", "Wait for a batch."
        self.queuing = make(Histogram, *queuing, **times)
