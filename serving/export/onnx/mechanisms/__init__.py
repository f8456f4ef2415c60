"""Attention mechanisms: what each does to a memory once, and how it weighs it at a step."""

from __future__ import annotations

from typing import Any

from keras_attention import (
    AdditiveAttention,
    CoverageAttention,
    LocalAttention,
    LocationAttention,
    LocationSensitiveAttention,
    MonotonicAttention,
    MonotonicChunkwiseAttention,
    MultiplicativeAttention,
)
from serving.export.onnx.mechanisms.additive import Additive
from serving.export.onnx.mechanisms.history import History
from serving.export.onnx.mechanisms.local import Local
from serving.export.onnx.mechanisms.mechanism import Mechanism, Nothing, Rows
from serving.export.onnx.mechanisms.monotonic import Chunkwise, Monotonic
from serving.export.onnx.mechanisms.multiplicative import Location, Multiplicative
from training.command.errors import UserError

__all__ = ["Mechanism", "Rows", "make"]

_CLASSES: dict[Any, type[Mechanism]] = {
    AdditiveAttention: Additive,
    MultiplicativeAttention: Multiplicative,
    LocationAttention: Location,
    LocalAttention: Local,
    LocationSensitiveAttention: History,
    CoverageAttention: History,
    MonotonicAttention: Monotonic,
    MonotonicChunkwiseAttention: Chunkwise,
}


def make(attention: Any, query_dim: int, memory_dim: int) -> Mechanism:
    """Return the form in ONNX of a built attention layer for queries and memories of these widths.

    Raises:
        UserError: for one that has none.
    """
    name = type(attention).__name__
    kind = Nothing if name == "FixedContext" else _CLASSES.get(type(attention))
    if kind is None:
        raise UserError(f"ONNX expected an attention of a preset. Received: {name}")
    made = kind(attention, query_dim, memory_dim)
    made.borrow([make(getattr(attention, part), query_dim, memory_dim) for part in made.parts])
    return made
