"""Threads that answer requests, behind an event loop that receives them."""

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

# A request of more bytes is heavy before it is read: a message of protobuf or JSON takes many times
# its size once it is parsed.
LARGE_BYTES = 2**20


class Workers:
    """Threads for requests of one kind, started as they are needed.

    `concurrent.futures` would do, but a future of its own takes locks and wakes waiters that no
    request here has: 7 % of the processor time of a request whose model computes almost nothing.

    Args:
        name: of the threads.
        threads: how many run.
        most: requests that they take, waiting ones included; beyond them one is refused at once.

    Attributes:
        busy: requests that they have.
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
        """How many of them no thread has taken."""
        return max(0, self.busy - self._most_threads)

    async def run(self, work: Callable[[], T], call: Call) -> T:
        """`work()` in one of the threads. Raises StatusError RESOURCE_EXHAUSTED.

        Where the caller is cancelled, so is `call`; a run that has begun goes on without it.
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
        """Start nothing more, and cancel what waits; runs under way are left to themselves."""
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
        """Whether nobody has taken a job before: a thread that does it, or who gives it up."""
        with self._lock:
            first, job.taken = not job.taken, True
            return first

    def _leave(self) -> None:
        with self._lock:
            self.busy -= 1

    def _give_up(self, job: "_Job") -> None:
        """Free a job's place at once, and what it holds, unless it has begun."""
        if self._take(job):
            job.work = (
                _nothing  # its request may be large, and the line is left when its turn comes
            )
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
            del job, result, error  # a thread that waits keeps no answer


@dataclass
class _Job:
    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    answered: "asyncio.Future[Any]"
    taken: bool = False


def _nothing() -> None:
    """The work of a job that was given up."""


def _settle(answered: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    """Hand what a thread has come to over to who waits for it in the event loop."""
    if answered.done():
        return
    if error is not None:
        answered.set_exception(error)
    else:
        answered.set_result(result)


class HeavyError(Exception):
    """A request that was begun has turned out to be heavy: it is to be begun again, apart."""


class Pools:
    """The server's threads, each kind with the one line that its requests wait in.

    Nothing waits for what is slower than itself.

    Args:
        usual, heavy: runs at once, and how many more may wait.

    Attributes:
        usual: for requests.
        heavy: for those of many bytes, long texts or many rows.
        reload: for changes of the configuration, which load models.
    """

    def __init__(self, usual: tuple[int, int], heavy: tuple[int, int]):
        self.usual = Workers("request", usual[0], sum(usual))
        self.heavy = Workers("heavy-request", heavy[0], sum(heavy))
        self.reload = Workers("reload", 1, 4)

    async def run(self, size: int, work: Callable[[], T], call: Call) -> T:
        """`work()` for a request of `size` bytes, which begins again where it is found heavy.

        Raises as `Workers.run` does.
        """
        if size <= LARGE_BYTES:
            with contextlib.suppress(HeavyError):
                return await self.usual.run(work, call)
        call.apart = True
        return await self.heavy.run(work, call)

    @property
    def busy(self) -> int:
        """Requests that are here."""
        return self.usual.busy + self.heavy.busy + self.reload.busy

    @property
    def waiting(self) -> int:
        """Requests that no thread has taken."""
        return self.usual.waiting + self.heavy.waiting

    def close(self) -> None:
        """Start nothing more."""
        for workers in (self.usual, self.heavy, self.reload):
            workers.close()
