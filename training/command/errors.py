"""Errors that a user can cause; scripts print them as one line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

_MEMORY = re.compile(
    "OOM when allocating|RESOURCE_EXHAUSTED|can.t allocate memory|out of memory|Unable to allocate"
)


class UserError(ValueError):
    """Something asked for that cannot be done; the message says what was expected and received."""


class MemoryFull(UserError):
    """A model or a batch that does not fit into memory."""


class RunError(UserError):
    """A run directory that cannot be used as asked."""


class ConfigError(UserError):
    """A preset, key or value that does not exist or does not fit."""


class UsageError(ConfigError):
    """A command line that cannot be followed: the command ends with status 2."""


@contextmanager
def enough_memory(what: str) -> Iterator[None]:
    """Raise MemoryFull, which says `what` needs it, where a backend has no memory for a tensor."""
    try:
        yield
    except Exception as error:
        if isinstance(error, MemoryError) or _MEMORY.search(str(error)):
            shape = re.search(r"shape ?\[[\d,]+\]", str(error))
            asked = f": a tensor of {shape[0]}" if shape else ""
            raise MemoryFull(f"{what} does not fit into memory{asked}") from None
        raise
