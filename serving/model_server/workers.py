"""Threads that answer requests, behind an event loop that receives them."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from serving.model_server.call import Call
from serving.status import Code, StatusError

T = TypeVar("T")

# A request of more bytes is read, and run, beside only one other like it: a message of protobuf or
# JSON takes many times its size once it is parsed.
LARGE_BYTES = 2**20


class Workers:
    """Threads for requests of one kind.

    Args:
        name: of the threads.
        threads: how many run.
        most: requests that they take, waiting ones included; beyond them one is refused at once.
    """

    def __init__(self, name: str, threads: int, most: int):
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._most = most
        self._lock = threading.Lock()
        self.busy = 0

    async def run(self, work: Callable[[], T], call: Call) -> T:
        """`work()` in one of the threads. Raises StatusError RESOURCE_EXHAUSTED.

        Where the caller is cancelled, so is `call`; a run that has begun goes on without it.
        """
        with self._lock:
            if self.busy >= self._most:
                raise StatusError(
                    Code.RESOURCE_EXHAUSTED,
                    f"The server is overloaded: {self.busy} requests are waiting",
                )
            self.busy += 1
        loop = asyncio.get_running_loop()
        # As asyncio.wrap_future, but for its many callbacks, which each request would wait for.
        answered: asyncio.Future[T] = loop.create_future()

        def hand_over(done: Future[T]) -> None:
            with self._lock:
                self.busy -= 1
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(_settle, answered, done)

        future = self._executor.submit(work)
        future.add_done_callback(hand_over)
        try:
            return await answered
        except asyncio.CancelledError:
            call.cancel()
            future.cancel()
            raise

    def close(self) -> None:
        """Start nothing more; runs under way are left to themselves."""
        self._executor.shutdown(wait=False, cancel_futures=True)


def _settle(answered: "asyncio.Future[T]", done: Future[T]) -> None:
    """Hand what a thread has come to over to who waits for it in the event loop."""
    if answered.done():
        return
    if done.cancelled():
        answered.cancel()
    elif error := done.exception():
        answered.set_exception(error)
    else:
        answered.set_result(done.result())


class Pools:
    """The server's threads, so divided that nothing waits for what is slower than itself.

    Args:
        requests: that may be here at once.

    Attributes:
        small, large: for inference, by the size of the request.
        reload: for changes of the configuration, which load models.
    """

    def __init__(self, requests: int):
        self.small = Workers("request", requests, requests)
        self.large = Workers("large-request", 2, 16)
        self.reload = Workers("reload", 1, 4)

    def inference(self, size: int) -> Workers:
        """The threads for a request of `size` bytes."""
        return self.large if size > LARGE_BYTES else self.small

    @property
    def busy(self) -> int:
        """Requests that are here."""
        return self.small.busy + self.large.busy + self.reload.busy

    def close(self) -> None:
        """Start nothing more."""
        for workers in (self.small, self.large, self.reload):
            workers.close()
