"""Canonical status codes, the same in TensorFlow and gRPC, and the error that carries one."""

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
    """A request that waits for a run: its time left, and whether the run costs much."""

    is_heavy: bool

    def seconds_left(self) -> float:
        """Seconds until nobody waits any more, at least 0."""


class StatusError(Exception):
    """A status other than OK: `code` and `message`."""

    def __init__(self, code: Code, message: str):
        super().__init__(message)
        self.code = code
        self.message = message

    @classmethod
    def internal(cls, error: Exception) -> Self:
        """The status of an error that is the server's own."""
        return cls(Code.INTERNAL, f"{type(error).__name__}: {error}")


def shortened(message: str) -> str:
    """The beginning of a message, as answers carry it."""
    return message if len(message) <= _MOST_SHOWN else message[:_MOST_SHOWN] + "...TRUNCATED"


def invalid(message: str) -> StatusError:
    """The error of a request that is the client's fault."""
    return StatusError(Code.INVALID_ARGUMENT, message)


def deadline_exceeded() -> StatusError:
    """The error of a request whose time is over."""
    return StatusError(Code.DEADLINE_EXCEEDED, "Timed out waiting for notification")
