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
    """A request that cannot be met; the message states the cause and what to type."""

    @classmethod
    def expected(cls, name: str, needed: object, received: object, remedy: str = "") -> Self:
        """Return the error for a value that does not fit: `NAME needs X, but it is Y. REMEDY`."""
        return cls(f"{name} needs {needed}, but it is {received}{'. ' * bool(remedy)}{remedy}")


class RunError(UserError):
    """A run directory that cannot be used for the request."""


class ConfigError(UserError):
    """A preset, key or value that does not exist or does not fit."""


class UsageError(ConfigError):
    """A command line with a mistake. The command ends with status 2."""


@contextmanager
def enough_memory(remedy: str) -> Iterator[None]:
    """Raise a UserError that ends with `remedy` if a backend has no memory for a tensor."""
    try:
        yield
    except Exception as error:
        if isinstance(error, MemoryError) or _MEMORY.search(str(error)):
            shape = re.search(r"shape ?\[[\d,]+\]", str(error))
            size = f" for a tensor of {shape[0]}" if shape else ""
            raise UserError(f"Out of memory{size}. {remedy}") from None
        raise


def described(error: OSError) -> str:
    """Return the reason of an OSError, the file's name, and a remedy if the disk is full."""
    where = f": {error.filename}" if error.filename else ""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    remedy = ". Free some space, or choose another disk" if full else ""
    return f"{error.strerror or error}{where}{remedy}"


def install(extra: str) -> str:
    """Return the command that installs an extra, such as `training`."""
    return f"pip install -e '.[{extra}]' in the repository"


def refuse_windows() -> None:
    """End the command with a one-line error if the platform is Windows."""
    if sys.platform == "win32":
        raise SystemExit(
            "error: Training and serving need Linux or macOS, because tensorflow-text has no "
            "Windows version. Use WSL. The layers and the client run on Windows"
        )
