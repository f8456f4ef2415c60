"""Functions to compare shapes, and to combine and flatten masks and memories."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from keras import ops, tree

Tensor = Any
Shape = Sequence[Any]


def fits(shape: Shape, expected: Shape) -> bool:
    """Return whether two shapes may be equal; None is an unknown size and fits any size."""
    if len(shape) != len(expected):
        return False
    pairs = zip(shape, expected, strict=True)
    return all(a is None or b is None or a == b for a, b in pairs)


def both(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """Return the logical AND of two boolean masks; None masks nothing."""
    if a is None or b is None:
        return a if b is None else b
    return ops.logical_and(a, b)


def causal_mask(queries: Any, length: Any) -> Tensor:
    """Return the mask `(1, queries, length)` in which query `i` sees positions up to `i`."""
    rows = ops.expand_dims(ops.arange(queries), 1)
    columns = ops.expand_dims(ops.arange(length), 0)
    return ops.expand_dims(rows >= columns, 0)


def flat_length(shape: Shape) -> int | None:
    """Return the number of positions of a memory `(B, Tv, dim)` or grid `(B, H, W, dim)`."""
    sizes = shape[1:-1]
    return None if None in sizes else math.prod(sizes)


def flat_memory(memory: Tensor) -> Tensor:
    """Return a memory or a grid as `(B, Tv, dim)`."""
    if len(memory.shape) == 3:
        return memory
    batch, height, width, dim = ops.shape(memory)
    return ops.reshape(memory, (batch, height * width, dim))


def flat_mask(mask: Tensor | None) -> Tensor | None:
    """Return a mask `(B, Tv)`, or of a grid `(B, H, W)`, as `(B, Tv)`."""
    if mask is None or len(mask.shape) < 3:
        return mask
    batch, height, width = ops.shape(mask)
    return ops.reshape(mask, (batch, height * width))


def first_place(mask: Tensor) -> Tensor:
    """Return the first position that a mask `(B, Tv)` allows, int32 `(B, 1, 1)`; 0 if none."""
    first = ops.argmax(ops.cast(mask, "int32"), axis=1)
    return ops.reshape(ops.cast(first, "int32"), (-1, 1, 1))


def keep_where(valid: Tensor, new: Any, old: Any) -> Any:
    """Return `new` where `valid` is True, otherwise `old`, for each tensor of a structure.

    The shape of `valid` is the shape of the tensors' first axes.
    """

    def choose(a: Tensor, b: Tensor) -> Tensor:
        others = tuple(range(len(valid.shape), len(a.shape)))
        return ops.where(ops.expand_dims(valid, others), a, b)

    return tree.map_structure(choose, new, old)


def blank_where_masked(mask: Tensor | None, x: Tensor) -> Tensor:
    """Return the tensor `x`, with zeros where the mask of its first axes is False.

    None masks nothing. A product with the mask would not do: 0 times NaN is NaN.
    """
    if mask is None:
        return x
    others = tuple(range(len(mask.shape), len(x.shape)))
    return ops.where(ops.expand_dims(mask, others), x, ops.zeros((), x.dtype))
