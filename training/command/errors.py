"""Errors that a user can cause; scripts print them as one line."""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

_MEMORY = re.compile(
    "OOM when allocating|RESOURCE_EXHAUSTED|can.t allocate memory|out of memory|Unable to allocate"
)


class UserError(ValueError):
    """A request that cannot be met; the message says what was expected and received."""

    @classmethod
    def expected(cls, name: str, wanted: object, received: object) -> Self:
        """Return the error of a value."""
        return cls(f"{name} expected {wanted}. Received: {received}")


class RunError(UserError):
    """A run directory that cannot be used as asked."""


class ConfigError(UserError):
    """A preset, key or value that does not exist or does not fit."""


class UsageError(ConfigError):
    """A command line that cannot be followed: the command ends with status 2."""


@contextmanager
def enough_memory(what: str) -> Iterator[None]:
    """Raise a UserError that names `what`, where a backend has no memory for a tensor."""
    try:
        yield
    except Exception as error:
        if isinstance(error, MemoryError) or _MEMORY.search(str(error)):
            shape = re.search(r"shape ?\[[\d,]+\]", str(error))
            size = f": a tensor of {shape[0]}" if shape else ""
            raise UserError(f"{what} does not fit into memory{size}") from None
        raise


def described(error: OSError) -> str:
    """Return why a file cannot be used, which one, and the remedy of a full disk."""
    where = f": {error.filename}" if error.filename else ""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    remedy = "; free some space, or choose a place on another disk" if full else ""
    return f"{error.strerror or error}{where}{remedy}"


def install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install -e '.[{extra}]' in the repository"


def refuse_windows() -> None:
    """End a command on Windows, with one line that names where it runs."""
    if sys.platform == "win32":
        raise SystemExit(
            "error: training and serving run on Linux and macOS, since tensorflow-text is not made "
            "for Windows: use WSL. The layers and the client run on Windows"
        )
