"""Errors that a user can cause. Commands print each error as one line."""

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
        """Return the error for a value: which value was wanted, and which was received."""
        return cls(f"{name} expected {wanted}. Received: {received}")


class RunError(UserError):
    """A run directory that cannot be used for the request."""


class ConfigError(UserError):
    """A preset, key or value that does not exist or does not fit."""


class UsageError(ConfigError):
    """A command line with a mistake. The command ends with status 2."""


@contextmanager
def enough_memory(what: str) -> Iterator[None]:
    """Raise a UserError that names `what` if a backend has no memory for a tensor."""
    try:
        yield
    except Exception as error:
        if isinstance(error, MemoryError) or _MEMORY.search(str(error)):
            shape = re.search(r"shape ?\[[\d,]+\]", str(error))
            size = f": a tensor of {shape[0]}" if shape else ""
            raise UserError(f"{what} does not fit into memory{size}") from None
        raise


def described(error: OSError) -> str:
    """Return the reason of an OSError, the file's name, and a remedy if the disk is full."""
    where = f": {error.filename}" if error.filename else ""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    remedy = "; free some space, or choose a place on another disk" if full else ""
    return f"{error.strerror or error}{where}{remedy}"


def install(extra: str) -> str:
    """Return the command that installs an extra, such as `training`."""
    return f"pip install -e '.[{extra}]' in the repository"


def refuse_windows() -> None:
    """End the command with a one-line error if the platform is Windows."""
    if sys.platform == "win32":
        raise SystemExit(
            "error: training and serving run on Linux and macOS, since tensorflow-text is not made "
            "for Windows: use WSL. The layers and the client run on Windows"
        )
