"""Functions of large tensors, applied to one block after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keras import ops

from keras_attention import backend
from keras_attention.fast import switch

Tensor = Any


def map_batch(
    function: Callable[..., Tensor], rows: list[Tensor], others: list[Tensor], row_size: Any
) -> Tensor:
    """Apply a function to blocks of the batch, or of rows if a block is less than one of a batch.

    A block of the batch has rows and others of its own, which fit the caches together.

    Args:
        function: of blocks `(b, n, ·)` of rows and `(b, m, ·)` of others to `(b, n, ·)`.
        rows: arrays `(B, T, ·)`.
        others: arrays `(B, m, ·)`.
        row_size: how many numbers the function makes of a row.

    Returns:
        The results of all blocks, `(B, T, ·)`.
    """
    batch, length = ops.shape(rows[0])[:2]
    count = -(-batch * length * row_size // switch.BLOCK)
    if not isinstance(count, int) or not 0 < count <= batch:
        return map_rows(lambda *rows: function(*rows, *others), rows, row_size)
    # Without padding, if there is a number of blocks for that.
    count = next((n for n in range(count, 2 * count) if batch % n == 0), count)
    n = -(-batch // count)

    def split_batch(x: Tensor) -> Tensor:
        """Split `(B, T, ·)` to `(count, n, T, ·)`, with zeros at the end of the last."""
        x = ops.pad(x, [[0, count * n - batch], [0, 0], [0, 0]])
        return ops.reshape(x, [count, n, *x.shape[1:]])

    found = _each(function, [split_batch(x) for x in [*rows, *others]])
    return ops.reshape(found, [count * n, *found.shape[2:]])[:batch]


def map_rows(function: Callable[..., Tensor], arrays: list[Tensor], row_size: Any) -> Tensor:
    """Apply a function to blocks of rows.

    Args:
        function: of blocks `(B, n, ·)` to `(B, n, ·)`.
        arrays: `(B, T, ·)`.
        row_size: how many numbers the function makes of a row.
    """
    count = count_blocks(arrays[0], row_size)
    found = _each(function, [split_rows(x, count) for x in arrays])
    return join_rows(found, ops.shape(arrays[0])[1])


def _each(function: Callable[..., Tensor], blocks: list[Tensor]) -> Tensor:
    """Apply a function to one block of each array after the other."""
    return backend.scan(lambda xs, _: (function(*xs), ()), (), blocks, blocks[0].dtype)[0]


def count_blocks(rows: Tensor, row_size: Any) -> Any:
    """Return into how many blocks to split the rows `(B, T, ·)`."""
    batch, length = ops.shape(rows)[:2]
    total = batch * length * row_size
    known = isinstance(total, int)
    largest, smallest = (max, min) if known else (ops.maximum, ops.minimum)
    return largest(1, smallest(length, -(-total // switch.BLOCK)))


def split_rows(x: Tensor, count: Any) -> Tensor:
    """Split `(B, T, dim)` to `(count, B, n, dim)`, with zeros at the end of the last."""
    batch, length, dim = ops.shape(x)
    n = -(-length // count)
    x = ops.pad(x, [[0, 0], [0, count * n - length], [0, 0]])
    x = ops.reshape(x, [batch, count, n, dim])
    return ops.transpose(x, [1, 0, 2, 3])


def join_rows(blocks: Tensor, length: Any) -> Tensor:
    """Join `(count, B, n, dim)` to `(B, length, dim)`."""
    count, batch, n, dim = ops.shape(blocks)
    x = ops.reshape(ops.transpose(blocks, [1, 0, 2, 3]), [batch, count * n, dim])
    return x[:, :length]
