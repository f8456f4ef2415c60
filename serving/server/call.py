"""A request under way: its deadline, its cancellation, and its facts for the log."""

import secrets
import threading
import time
from collections.abc import Callable

from serving.savedmodel.status import Code, StatusError


class Call:
    """One request under way. Threads may share it.

    Args:
        seconds: until its deadline; None for no deadline.
        entrypoint: the protocol that it came by, `GRPC` or `REST`.
        request_id: of the request log; one is drawn where none is given.

    Attributes:
        rows: the rows of its inputs, once admitted.
        version: the version that answers it, once known.
        apart: whether it runs among the heavy requests already.
    """

    def __init__(
        self,
        seconds: float | None = None,
        entrypoint: str = "GRPC",
        request_id: str | None = None,
    ):
        self.entrypoint = entrypoint
        self.request_id = request_id or secrets.token_hex(16)
        self.rows = 0
        self.apart = False
        self.version: int | None = None
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._cancelled = False
        self._callbacks: list[Callable[[], object]] = []
        self._lock = threading.Lock()

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the deadline, at least 0; None without a deadline."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    @property
    def milliseconds_left(self) -> int:
        """Milliseconds until the deadline, at least 1; 0 without a deadline."""
        left = self.seconds_left
        return 0 if left is None else max(1, int(left * 1000))

    def check(self) -> None:
        """Raise StatusError CANCELLED or DEADLINE_EXCEEDED if nobody waits any more."""
        if self._cancelled:
            raise StatusError(Code.CANCELLED, "The client has gone")
        if self.seconds_left == 0:
            raise StatusError(Code.DEADLINE_EXCEEDED, "Timed out waiting for notification")

    def cancel(self) -> None:
        """Mark the request as abandoned by its client."""
        with self._lock:
            self._cancelled = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def when_cancelled(self, callback: Callable[[], object]) -> None:
        """Call `callback` when the client leaves, or now if it has left."""
        with self._lock:
            if not self._cancelled:
                self._callbacks.append(callback)
                return
        callback()
