"""The status codes that TensorFlow and gRPC share, and the error that carries one."""

import time
from enum import IntEnum
from typing import Protocol, Self

_MOST_SHOWN = 1024  # characters of a message


class Code(IntEnum):
    """Canonical status code."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class Waiting(Protocol):
    """A request that waits for a run: its remaining time, and whether the run is expensive."""

    @property
    def is_expensive(self) -> bool:
        """Return whether the run is expensive."""

    def seconds_left(self) -> float:
        """Return the seconds until the request ends, at least 0."""


class Deadline:
    """Waits for a cheap run, for so many seconds."""

    def __init__(self, seconds: float):
        self._end = time.monotonic() + seconds

    @property
    def is_expensive(self) -> bool:
        return False

    def seconds_left(self) -> float:
        """Return the seconds until the deadline, at least 0."""
        return max(0.0, self._end - time.monotonic())


class StatusError(Exception):
    """A status other than OK: `code` and `message`."""

    def __init__(self, code: Code, message: str):
        super().__init__(message)
        self.code = code
        self.message = message

    @classmethod
    def internal(cls, error: Exception) -> Self:
        """Return the INTERNAL status of an unexpected error of the server."""
        return cls(Code.INTERNAL, f"{type(error).__name__}: {error}")


def shortened(message: str) -> str:
    """Return a message, truncated to the length that responses carry."""
    return message if len(message) <= _MOST_SHOWN else message[:_MOST_SHOWN] + "...TRUNCATED"


def invalid(message: str) -> StatusError:
    """Return an INVALID_ARGUMENT error: the client's request is wrong."""
    return StatusError(Code.INVALID_ARGUMENT, message)


def deadline_exceeded() -> StatusError:
    """Return a DEADLINE_EXCEEDED error: the time of the request is over."""
    return StatusError(Code.DEADLINE_EXCEEDED, "Timed out waiting for notification")
