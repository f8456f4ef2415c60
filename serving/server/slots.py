"""Runs that share the machine: so many at once, and a line of bounded length before them."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from serving.savedmodel.status import Code, StatusError
from serving.server.call import Call

T = TypeVar("T")


class Slots:
    """At most `count` runs at once, of all models; the others wait in the order they came.

    Args:
        count: runs at once.
        waiting: runs that may wait; beyond them a run is refused at once. None for any number.

    Attributes:
        running: how many runs there are now.
    """

    def __init__(self, count: int, waiting: int | None = None):
        self.running = 0
        self._count = count
        self._most_waiting = waiting
        self._lock = threading.Lock()
        self._line: OrderedDict[threading.Event, None] = OrderedDict()

    @property
    def waiting(self) -> int:
        """How many runs wait now."""
        return len(self._line)

    def run(self, work: Callable[[], T], call: Call) -> T:
        """`work()` when there is a slot.

        Raises StatusError: RESOURCE_EXHAUSTED where too many wait already; CANCELLED or
        DEADLINE_EXCEEDED, without running, where nobody waits for the result any more.
        """
        self._enter(call)
        try:
            call.check()
            return work()
        finally:
            self._leave()

    def _enter(self, call: Call) -> None:
        with self._lock:
            if self.running < self._count:
                self.running += 1
                return
            if self._most_waiting is not None and len(self._line) >= self._most_waiting:
                raise StatusError(
                    Code.RESOURCE_EXHAUSTED,
                    f"The server is overloaded: {len(self._line)} requests are waiting",
                )
            turn = threading.Event()
            self._line[turn] = None
        call.when_cancelled(turn.set)
        turn.wait(call.seconds_left)
        with self._lock:
            if turn not in self._line:
                return  # whoever left handed its slot over
            del self._line[turn]
        call.check()
        raise StatusError(Code.DEADLINE_EXCEEDED, "Timed out waiting for notification")

    def _leave(self) -> None:
        with self._lock:
            if self._line:
                turn, _ = self._line.popitem(last=False)
                turn.set()
            else:
                self.running -= 1
