"""The switch of the fast paths, and the sizes from which each of them pays.

A fast path gives the result of a plain formula. Functions that were traced or compiled before a
switch stay as they are. The switch leaves each backend's own loops, products and gathers alone.
Layers answer whether a fast form fits them: see `recurrent/keras_cells.py`, `linear_query` and
`averages`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from keras_attention import backend

Tensor = Any

VARIABLE = "KERAS_ATTENTION_FAST_PATHS"
LARGE = 2000  # elements of a row

_of_process = os.environ.get(VARIABLE, "1")
if _of_process not in ("0", "1"):
    raise ValueError(f"{VARIABLE} expected 0 or 1. Received: {_of_process!r}")

_enabled: ContextVar[bool] = ContextVar("enabled", default=_of_process == "1")
_exporting: ContextVar[bool] = ContextVar("exporting", default=False)
_training: ContextVar[bool] = ContextVar("training", default=False)
_products: ContextVar[str | None] = ContextVar("products", default=None)


# Set by callers.


@contextlib.contextmanager
def fast_paths(enabled: bool) -> Iterator[None]:
    """Within this, run the fast paths, or the plain formulas that they stand for.

    It holds for this thread. For a whole process set the environment variable
    `KERAS_ATTENTION_FAST_PATHS` to 0.

    Args:
        enabled: whether the fast paths may run.
    """
    token = _enabled.set(bool(enabled))
    try:
        yield
    finally:
        _enabled.reset(token)


@contextlib.contextmanager
def exporting() -> Iterator[None]:
    """Within this, trace functions so that they run where XLA does not, as in TensorFlow Serving.

    Save a TensorFlow model whose batch size and lengths are all known under it.
    """
    token = _exporting.set(True)
    try:
        yield
    finally:
        _exporting.reset(token)


@contextlib.contextmanager
def training(flag: bool = True) -> Iterator[None]:
    """Within this, a layer is called with this `training`: gradients may follow."""
    token = _training.set(flag)
    try:
        yield
    finally:
        _training.reset(token)


@contextlib.contextmanager
def products_in(dtype: str) -> Iterator[None]:
    """Within this, the loops of `fast.loop` compute their products in the dtype.

    Args:
        dtype: "float32" or "bfloat16", whatever the dtype of a cell is.
    """
    token = _products.set(dtype)
    try:
        yield
    finally:
        _products.reset(token)


# Asked by the library.


def products_dtype() -> str | None:
    """Return the dtype of `products_in`, or None outside."""
    return _products.get()


def enabled() -> bool:
    """Whether fast paths may run at all."""
    return _enabled.get()


def additive(query: Tensor, key: Tensor, scale: Tensor) -> Tensor | None:
    """Return additive scores by a backend's own way, or None: see `backend.additive`.

    An export from TensorFlow must not need XLA, which compiles them.
    """
    if not _enabled.get() or _exporting.get():
        return None
    return backend.additive(query, key, scale, _training.get())


def hoists() -> bool:
    """Whether the loops of `fast.loop` may run: on TensorFlow and on GPUs, where they pay."""
    return enabled() and (backend.is_tensorflow() or backend.for_gpu())


def hoists_attention(training: bool | None) -> bool:
    """Whether the loop of a cell that attends may run hoisted.

    Under XLA it pays by the gradients: a forward pass alone is up to 1.35 times as slow.
    """
    return bool(training) or not backend.under_xla()


def splits_rows(size: int | None) -> bool:
    """Whether the greatest elements of rows of this length are looked for in parts of them.

    That is 3.5 times as fast for 160 rows of 8,000, and slower below 2,000.
    """
    return enabled() and size is not None and size >= LARGE


def drops_finished(memory: Any) -> bool:
    """Whether finished sentences are dropped from the batch during a search with this memory."""
    return enabled() and memory is not None and not backend.under_xla()
