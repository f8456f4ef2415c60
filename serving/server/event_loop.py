"""The thread of the event loop that receives requests and sends answers."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

try:
    from uvloop import EventLoopPolicy  # each turn of its loop takes half the time
except ImportError:  # not made for this system
    from asyncio import DefaultEventLoopPolicy as EventLoopPolicy

T = TypeVar("T")


class EventLoop:
    """An event loop in a thread of its own. Other threads do the work, so it never blocks."""

    def __init__(self, name: str) -> None:
        self.loop = EventLoopPolicy().new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.close()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def close(self) -> None:
        """Cancel all tasks, and end the thread."""

        async def cancel() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.wait(others, timeout=1) if others else None

        self.start(cancel()).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
