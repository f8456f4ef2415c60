"""Requests under way: their deadlines, the threads that answer them, and their metrics."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest

from serving.savedmodel.status import Code, StatusError

T = TypeVar("T")
_PREFIX = ":tensorflow:serving:"
_MICROSECONDS = [10 * 1.8**power for power in range(33)]  # to about 20 minutes


class Call:
    """One request.

    Args:
        seconds: until its deadline.
        entrypoint: the protocol that it came by, `GRPC` or `REST`.
    """

    def __init__(self, seconds: float, entrypoint: str = "GRPC"):
        self.entrypoint = entrypoint
        self._deadline = time.monotonic() + seconds
        self._cancelled = False

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline, at least 0."""
        return max(0.0, self._deadline - time.monotonic())

    def check(self) -> None:
        """Raise StatusError CANCELLED or DEADLINE_EXCEEDED if nobody waits any more."""
        if self._cancelled:
            raise StatusError(Code.CANCELLED, "The client has gone")
        if not self.seconds_left:
            raise deadline_exceeded()

    def cancel(self) -> None:
        """Mark the request as abandoned by its client."""
        self._cancelled = True


def deadline_exceeded() -> StatusError:
    """The error of a request whose time is over."""
    return StatusError(Code.DEADLINE_EXCEEDED, "Timed out waiting for notification")


class Workers:
    """Threads that answer requests; further requests wait for one, up to a number.

    Args:
        threads: their number.
        waiting: requests that may wait.
    """

    def __init__(self, threads: int, waiting: int):
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="request")
        self._most = threads + waiting
        self._lock = threading.Lock()
        self.busy = 0

    async def run(self, work: Callable[[], T], call: Call) -> T:
        """Return `work()`, run in one of the threads.

        A request that is cancelled while it waits is not run. Raises StatusError
        RESOURCE_EXHAUSTED where too many wait, UNAVAILABLE after `close`.
        """
        with self._lock:
            if self.busy >= self._most:
                raise StatusError(
                    Code.RESOURCE_EXHAUSTED,
                    f"The server is overloaded: {self.busy} requests are under way",
                )
            self.busy += 1
        try:
            future = self._pool.submit(work)
        except RuntimeError:
            self._end(None)
            raise StatusError(Code.UNAVAILABLE, "The server is stopping") from None
        future.add_done_callback(self._end)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            call.cancel()
            raise

    def _end(self, _: Future[T] | None) -> None:
        with self._lock:
            self.busy -= 1

    def close(self) -> None:
        """Refuse new requests and cancel waiting ones. Running ones continue."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class Metrics:
    """Counters and histograms, with the stock server's names."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        # prometheus_client adds `_total` to the name of a Counter; the stock server has none.
        self.requests = self._gauge("request_count", "Requests.", "model_name", "status")
        self.loaded = self._gauge(
            "model_version_loaded", "1 for a version that answers.", "model_name", "version"
        )
        self.in_flight = self._gauge("requests_in_flight", "Requests that run or wait.")
        self.latency = self._histogram(
            "request_latency", "Time of requests.", "model_name", "API", "entrypoint"
        )
        self.runtime = self._histogram("runtime_latency", "Time of runs.", "model_name", "API")
        self.queuing = self._histogram("batching_session:queuing_latency", "Wait for a batch.")

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(_PREFIX + name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        text += " In microseconds."
        return Histogram(
            _PREFIX + name, text, labels, registry=self.registry, buckets=_MICROSECONDS
        )

    def page(self) -> bytes:
        """All metrics in Prometheus's text format."""
        return generate_latest(self.registry)
