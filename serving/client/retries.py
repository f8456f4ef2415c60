"""Retries of failed requests: their pauses, and the budget of all."""

import random
import threading
import time

from serving.client.errors import RateLimitedError, ServerUnavailableError, ServingError

RETRIES = 5
MOST_SECONDS = 1e9  # of a deadline; gRPC counts nanoseconds since 1970 in 63 bits
_FIRST_DELAY, _LONGEST_DELAY = 0.1, 4.0
_MOST_TOKENS, _TOKENS_EARNED = 20.0, 0.1


class Deadline:
    """A point in time. Args: seconds: until it; None for no deadline."""

    def __init__(self, seconds: float | None):
        self._end = None if seconds is None else time.monotonic() + seconds

    def left(self, most: float) -> float:
        """Seconds until it, at most `most`; below 0 where it has passed."""
        return most if self._end is None else min(most, self._end - time.monotonic())


class RetryBudget:
    """Retries that all requests of a client share, so that it does not bring a server down.

    As gRPC's retry throttling (gRFC A6): a failure takes a token of 20, a success gives back a
    tenth, and nothing is sent again while half of them or fewer are left. Threads may share it.
    """

    def __init__(self) -> None:
        self._tokens, self._lock = _MOST_TOKENS, threading.Lock()

    def succeeded(self) -> None:
        """Count a request that was answered."""
        with self._lock:
            self._tokens = min(_MOST_TOKENS, self._tokens + _TOKENS_EARNED)

    def failed(self) -> bool:
        """Count a failure; return whether the request may be sent again."""
        with self._lock:
            self._tokens = max(0.0, self._tokens - 1)
            return self._tokens > _MOST_TOKENS / 2


def pause(failure: ServingError, attempt: int, retries: int, budget: RetryBudget) -> float | None:
    """Seconds to wait before a request is sent again, or None where it is not.

    A request is sent again if the server did not run it, or could not answer. Asking twice is
    harmless. Pauses grow, and are random so that clients do not come back together.

    Args:
        failure: of the last attempt.
        attempt: how many were sent again before.
        retries: how many may be.
        budget: of the client; the failure is counted where there are retries at all.
    """
    if not isinstance(failure, (ServerUnavailableError, RateLimitedError)):
        return None
    if not retries or not budget.failed() or attempt >= retries:
        return None
    delay = min(_LONGEST_DELAY, _FIRST_DELAY * 2**attempt) * random.uniform(0.5, 1.0)
    asked = failure.wait if isinstance(failure, RateLimitedError) else None
    return delay if asked is None else max(delay, asked)
