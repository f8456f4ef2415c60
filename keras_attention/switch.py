"""The switch of the fast paths, and what callers say of the functions that are being traced.

A fast path gives the result of a plain formula. Functions that were traced or compiled before a
switch stay as they are. The switch leaves each backend's own loops, products and gathers alone.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, NamedTuple

VARIABLE = "KERAS_ATTENTION_FAST_PATHS"

_of_process = os.environ.get(VARIABLE, "1")
if _of_process not in ("0", "1"):
    raise ValueError(f"{VARIABLE} expected 0 or 1. Received: {_of_process!r}")


class Settings(NamedTuple):
    """What holds for this thread.

    Attributes:
        fast: whether fast paths may run.
        exporting: whether functions must run where XLA does not.
        training: whether a layer is called for training, so that gradients may follow.
        products: dtype of the products in the loops of `fast.loop`, or None for that of the cell.
    """

    fast: bool = _of_process == "1"
    exporting: bool = False
    training: bool = False
    products: str | None = None


current: ContextVar[Settings] = ContextVar("current", default=Settings())  # noqa: B039


@contextlib.contextmanager
def within(**settings: Any) -> Iterator[None]:
    """Within this, some `Settings` have other values."""
    token = current.set(current.get()._replace(**settings))
    try:
        yield
    finally:
        current.reset(token)


def fast_paths(enabled: bool) -> AbstractContextManager[None]:
    """Within this, run the fast paths, or the plain formulas that they stand for.

    It holds for this thread. For a whole process set the environment variable
    `KERAS_ATTENTION_FAST_PATHS` to 0.

    Args:
        enabled: whether the fast paths may run.
    """
    return within(fast=bool(enabled))


def exporting() -> AbstractContextManager[None]:
    """Within this, trace functions so that they run where XLA does not, as in TensorFlow Serving.

    Save a TensorFlow model whose batch size and lengths are all known under it.
    """
    return within(exporting=True)
