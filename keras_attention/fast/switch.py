"""The switch of the fast paths, and the sizes from which each of them pays.

A fast path gives the result of a plain formula. Functions that were traced or compiled before a
switch stay as they are. The switch leaves each backend's own loops, products and gathers alone.
Layers answer whether a fast form fits them: see `recurrent/keras_cells.py`, `linear_query` and
`averages`.

Additive scores of large sizes have a gradient of their own. Forward mode on JAX and `torch.func` on
PyTorch then raise an error: they work within `fast_paths(False)`.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Literal

from keras_attention import backend

Tensor = Any
AdditivePath = Literal["formula", "blocks", "exponential", "compiled", "in_place", "kernel"]

VARIABLE = "KERAS_ATTENTION_FAST_PATHS"
# Numbers in a block of additive scores: about as many as the caches hold. Smaller scores are
# computed as a whole.
BLOCK = 2**20
EAGER = 2**27  # the same where TensorFlow or JAX run eagerly: half a gigabyte
DYNAMO = 2**24  # the same under torch.compile
FUSED = 2**26  # the same under JAX on a GPU, where the formula ends in a sum that XLA fuses
IN_PLACE = 2**18  # the same where memory is written again: one core's own cache
LARGE = 2000  # elements of a row

_of_process = os.environ.get(VARIABLE, "1")
if _of_process not in ("0", "1"):
    raise ValueError(f"{VARIABLE} expected 0 or 1. Received: {_of_process!r}")

_enabled: ContextVar[bool] = ContextVar("enabled", default=_of_process == "1")
_exporting: ContextVar[bool] = ContextVar("exporting", default=False)
_training: ContextVar[bool] = ContextVar("training", default=False)


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
def training(flag: bool | None) -> Iterator[None]:
    """Within this, a layer is called with this `training`: gradients may follow."""
    token = _training.set(bool(flag))
    try:
        yield
    finally:
        _training.reset(token)


# Asked by the library.


def enabled() -> bool:
    """Whether fast paths may run at all."""
    return _enabled.get()


def additive(query: Tensor, key: Tensor, scale: Tensor) -> AdditivePath:
    """Return how to compute additive scores; arguments as those of `scores.additive`.

    - `"formula"` for what is small, for one query or one key, and for a step of a loop;
    - `"exponential"` where XLA compiles the whole;
    - `"compiled"`, the exponential form as a function that XLA compiles by itself;
    - `"in_place"`, the exponential form in memory that is written again and again, on PyTorch;
    - `"kernel"`, by kernels of Triton, on PyTorch with a GPU;
    - `"blocks"`, by `tanh` for one block of queries after the other, elsewhere.
    """
    lengths = query.shape[1], key.shape[1]
    batches = {query.shape[0], key.shape[0]}
    if any(n is not None and not isinstance(n, int) for n in (*batches, *lengths, *scale.shape)):
        return "formula"  # symbols on JAX: only the shape of the result is asked for
    batch = None if batches == {None, 1} else max(batches - {None}, default=None)
    sizes = [batch, *lengths, *scale.shape]
    count = None if None in sizes else math.prod(sizes)
    if not enabled() or (count is not None and count <= min(IN_PLACE, BLOCK)):
        return "formula"  # before tensors are looked at, which costs small steps 5 % on PyTorch
    if backend.writes_in_place(query, key, scale):
        return "in_place"
    if 1 in lengths or backend.in_loop():
        return "formula"
    if backend.has_kernel(query, key, scale):
        return "kernel"
    if count is not None and count <= _largest_formula():
        return "formula"
    if backend.under_xla():
        return "exponential"
    return "compiled" if _compiles(query, key) else "blocks"


def _largest_formula() -> int:
    """Return how many numbers the formula of additive scores may make, where it is the faster."""
    if backend.is_eager():  # a loop over blocks is slower, 100 times on JAX, and saves memory alone
        return EAGER
    if backend.under_dynamo():  # compiled blocks of fewer take up to 3 times as long
        return DYNAMO
    if not backend.under_xla():
        return BLOCK
    # Of fewer a step is up to 1.28 times as slow in the exponential form; on JAX's CPU up to 1.14.
    if backend.is_tensorflow():
        return 2 * BLOCK
    return FUSED if backend.fuses_sums() else 4 * BLOCK


def _compiles(*sequences: Tensor) -> bool:
    """Whether to compile a function of `(B, T, dim)` tensors by XLA where the whole is not.

    On TensorFlow, in graphs alone. Each new shape is compiled anew, which takes seconds: only for
    known lengths. The batch may be unknown in training, where it rarely changes. An export must
    not need XLA.
    """
    if not backend.builds_graph() or _exporting.get():
        return False
    if any(x.shape[1] is None for x in sequences):
        return False
    return _training.get() or all(x.shape[0] is not None for x in sequences)


def hoists() -> bool:
    """Whether the loops of `fast.loop` may run: on TensorFlow, where they pay."""
    return enabled() and backend.is_tensorflow()


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


def lets_leave(memory: Any) -> bool:
    """Whether settled sentences leave a search with this memory: the batch changes its size."""
    return enabled() and memory is not None and not backend.under_xla()
