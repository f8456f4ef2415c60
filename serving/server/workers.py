"""Threads that answer requests. An event loop receives them."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from serving.savedmodel.status import Code, StatusError
from serving.server.call import Call

T = TypeVar("T")

# A larger request is heavy before it is parsed: protobuf and JSON take many times their size then.
LARGE_BYTES = 2**20


class Workers:
    """Threads for requests of one kind, with one queue. They start when needed.

    An executor of `concurrent.futures` would do, but its futures lock and wake more than is needed
    here: 7 % of the processor time of a request to a trivial model.

    Args:
        name: of the threads.
        threads: their number.
        most: running and waiting requests together; further ones are refused at once.
    """

    def __init__(self, name: str, threads: int, most: int):
        self._name = name
        self._most_threads, self._started = threads, 0
        self._most = most
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()  # None ends a thread
        self._closed = False
        self.busy = 0

    @property
    def waiting(self) -> int:
        """The number of waiting requests."""
        return max(0, self.busy - self._most_threads)

    async def run(self, work: Callable[[], T], call: Call) -> T:
        """Return `work()`, run in one of the threads. Raises StatusError RESOURCE_EXHAUSTED.

        If the caller is cancelled, so is `call`; a run that has begun continues without it.
        """
        loop = asyncio.get_running_loop()
        job = _Job(work, loop, loop.create_future())
        with self._lock:
            if self._closed:
                raise StatusError(Code.UNAVAILABLE, "The server is stopping")
            if self.busy >= self._most:
                raise StatusError(
                    Code.RESOURCE_EXHAUSTED,
                    f"The server is overloaded: {self.busy} requests are waiting",
                )
            self.busy += 1
            if self.busy > self._started < self._most_threads:
                self._started += 1
                name = f"{self._name}_{self._started}"
                threading.Thread(target=self._serve, name=name, daemon=True).start()
            self._jobs.put(job)
        try:
            answer: T = await job.answered
        except asyncio.CancelledError:
            call.cancel()
            self._give_up(job)
            raise
        return answer

    def close(self) -> None:
        """Refuse new requests and cancel waiting ones. Running ones continue."""
        with self._lock:
            self._closed = True
            waiting = []
            with contextlib.suppress(Empty):
                while True:
                    waiting.append(self._jobs.get_nowait())
            for _ in range(self._started):
                self._jobs.put(None)
        for job in filter(None, waiting):
            self._give_up(job)
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                job.loop.call_soon_threadsafe(job.answered.cancel)

    def _take(self, job: "_Job") -> bool:
        """Claim a job, to run it or to give it up; False if it was claimed before."""
        with self._lock:
            first, job.taken = not job.taken, True
            return first

    def _leave(self) -> None:
        with self._lock:
            self.busy -= 1

    def _give_up(self, job: "_Job") -> None:
        """Free a job's place and memory at once, unless it has begun."""
        if self._take(job):
            job.work = _nothing  # frees its request; the job leaves the queue when its turn comes
            self._leave()

    def _serve(self) -> None:
        while job := self._jobs.get():
            if not self._take(job):
                continue
            result: Any = None
            error: BaseException | None = None
            try:
                result = job.work()
            except BaseException as caught:
                error = caught
            self._leave()
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                job.loop.call_soon_threadsafe(_settle, job.answered, result, error)
            del job, result, error  # an idle thread must not hold an answer


@dataclass
class _Job:
    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    answered: "asyncio.Future[Any]"
    taken: bool = False


def _nothing() -> None:
    """The work of an abandoned job."""


def _settle(answered: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    """Set the result of a thread's work, in the event loop."""
    if answered.done():
        return
    if error is not None:
        answered.set_exception(error)
    else:
        answered.set_result(result)


class HeavyError(Exception):
    """A running request turned out to be heavy: it starts again, apart."""


class Pools:
    """The server's threads. Each kind has one queue, so no request waits for slower ones.

    Attributes:
        usual: for requests.
        heavy: for requests of many bytes, long texts or many rows.
        reload: for new configurations, which load models.
    """

    def __init__(self, usual: tuple[int, int], heavy: tuple[int, int]):
        self.usual = Workers("request", usual[0], sum(usual))
        self.heavy = Workers("heavy-request", heavy[0], sum(heavy))
        self.reload = Workers("reload", 1, 4)

    async def run(self, size: int, work: Callable[[], T], call: Call) -> T:
        """Return `work()` for a request of `size` bytes. A heavy one starts again, apart.

        Raises as `Workers.run` does.
        """
        if size <= LARGE_BYTES:
            with contextlib.suppress(HeavyError):
                return await self.usual.run(work, call)
        call.apart = True
        return await self.heavy.run(work, call)

    @property
    def busy(self) -> int:
        """Running and waiting requests."""
        return self.usual.busy + self.heavy.busy + self.reload.busy

    @property
    def waiting(self) -> int:
        """Waiting requests."""
        return self.usual.waiting + self.heavy.waiting

    def close(self) -> None:
        """Refuse new requests."""
        for workers in (self.usual, self.heavy, self.reload):
            workers.close()
