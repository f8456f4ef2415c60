"""Additive scores as functions that XLA compiles, on TensorFlow: see `generic.additive`.

`tanh(q + k) = 1 - 2r` with `r = 1 / (1 + e^{2q} e^{2k})`. So only the elements of queries and keys
need exponentials, not each pair. XLA computes `r` in the loop that sums it, for `SLICES` slices of
an axis at once. The loop runs over blocks of sentences, or over blocks of rows of a long sentence.
The gradients compute `r` again. If exponentials are too large for float32, the plain formula runs
for one sentence at a time.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_attention.backend._generic import PLAIN_GRAPH
from keras_attention.shapes import Tensor

Term = Callable[[Tensor], Tensor]
Make = Callable[[], Any]

BLOCK = 2**21  # values of `r` in a block; an eighth of them is stored
SLICES = 8
# If max(q) + max(k) is below it, products of two factors `1 + e^{2q} e^{2k}` are finite in float32.
LARGEST_SUM = 22.0


@tf.custom_gradient
def additive(query: Tensor, key: Tensor, scale: Tensor) -> tuple[Tensor, Callable[[Tensor], Any]]:
    """Return `vᵀ tanh(q + k)` with derivatives of any order, `(B, Tq, Tv)`."""
    scores = _scores(*_unseen(query, key, scale))
    return scores, functools.partial(_gradients, query, key, scale)


@tf.custom_gradient
def _gradients(query: Tensor, key: Tensor, scale: Tensor, upstream: Tensor) -> Any:
    """Return the gradients of `additive`; second derivatives are computed with the formula."""
    upstream = tf.ensure_shape(upstream, [query.shape[0], query.shape[1], key.shape[1]])
    args = query, key, scale, upstream

    def second(*upstreams: Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(args)
            of_query, of_key, of_scale = _gradients_by_formula(*args)
            first = of_query, of_key, tf.reduce_sum(of_scale, 0)
        return tape.gradient(first, args, upstreams, unconnected_gradients="zero")

    return _first_gradients(*_unseen(*args)), second


def _gradients_by_formula(query: Tensor, key: Tensor, scale: Tensor, upstream: Tensor) -> Any:
    """Return the gradients of query, key and scale by the plain formula.

    The gradient of the scale is `(B, units)`, for each sentence. All arguments but the scale may
    lack the batch axis.
    """
    # (B, Tq, Tv, units)
    hidden = tf.tanh(tf.expand_dims(query, -2) + tf.expand_dims(key, -3))
    weights = tf.expand_dims(upstream, -1)
    slope = scale * weights * (1 - hidden * hidden)
    of_scale = tf.reduce_sum(weights * hidden, [-3, -2])
    return tf.reduce_sum(slope, -2), tf.reduce_sum(slope, -3), of_scale


def _unseen(*args: Tensor) -> list[Tensor]:
    """Return the tensors without gradients.

    If a tape watches them, a loop stores values of all steps, and XLA cannot compile the loop.
    """
    return [tf.stop_gradient(x) for x in args]


@tf.function(jit_compile=True, **PLAIN_GRAPH)
def _scores(query: Tensor, key: Tensor, scale: Tensor) -> Tensor:
    """Return `Σ v - 2 Σ_d v_d r_d`."""

    def block(queries: list[Tensor], key: Tensor) -> Tensor:
        # (b, n, 1, units / SLICES) and (b, 1, Tv, units / SLICES)
        a = [tf.expand_dims(x, 2) for x in _slices(tf.exp(2 * queries[0]), 2)]
        b = [tf.expand_dims(x, 1) for x in _slices(tf.exp(2 * key), 2)]
        total = _sum(a, b, _slices(scale, 0), lambda r: r)  # (b, n, Tv, units / SLICES)
        return tf.linalg.matvec(total, tf.ones(total.shape[-1], total.dtype))

    def by_exponentials() -> Tensor:
        row = key.shape[1] * query.shape[2]
        return tf.reduce_sum(scale) - 2 * _map(block, [query], key, row)

    def by_formula() -> Tensor:
        return tf.map_fn(
            # (Tq, 1, units) + (Tv, units), by (units,): (Tq, Tv)
            lambda pair: tf.linalg.matvec(tf.tanh(tf.expand_dims(pair[0], 1) + pair[1]), scale),
            (query, key),
            fn_output_signature=query.dtype,
        )

    return _where_finite(query, key, by_exponentials, by_formula)


@tf.function(jit_compile=True, **PLAIN_GRAPH)
def _first_gradients(query: Tensor, key: Tensor, scale: Tensor, upstream: Tensor) -> Any:
    """Return the gradients of `_scores`, by `d tanh = 4 r (1 - r)`."""

    def by_exponentials() -> tuple[Tensor, ...]:
        turned = tf.transpose(upstream, [0, 2, 1])  # (B, Tv, Tq)
        of_query = _weighted(query, key, upstream, lambda r: r - r * r)
        of_key = _weighted(key, query, turned, lambda r: r - r * r)
        of_scale = _weighted(query, key, upstream, lambda r: r)
        # Subtracted row by row, not once: the sum of all `r` is far larger than the sum of all
        # `1 - 2r`, and its rounding error would be too large for the difference.
        of_scale = tf.reduce_sum(upstream, -1, keepdims=True) - 2 * of_scale
        return 4 * scale * of_query, 4 * scale * of_key, tf.reduce_sum(of_scale, [0, 1])

    def by_formula() -> tuple[Tensor, ...]:
        of_query, of_key, of_scale = tf.map_fn(
            lambda args: _gradients_by_formula(args[0], args[1], scale, args[2]),
            (query, key, upstream),
            fn_output_signature=(query.dtype,) * 3,
        )
        return of_query, of_key, tf.reduce_sum(of_scale, 0)

    return _where_finite(query, key, by_exponentials, by_formula)


def _where_finite(query: Tensor, key: Tensor, make: Make, make_other: Make) -> Any:
    """Return `make()` if products of exponentials are finite in float32, else `make_other()`."""
    largest = sum(tf.nn.relu(tf.reduce_max(x)) for x in (query, key))
    return tf.cond(largest < LARGEST_SUM, make, make_other)


def _weighted(rows: Tensor, others: Tensor, weights: Tensor, term: Term) -> Tensor:
    """Return `Σ_j weights_ij term(r_ij)`, `(B, T, units)`, for rows i and others j."""

    def block(rows: list[Tensor], others: Tensor) -> Tensor:
        a = tf.expand_dims(tf.exp(2 * rows[0]), 2)  # (b, n, 1, units)
        # (b, 1, m / SLICES, units) and (b, n, m / SLICES, 1)
        b = [tf.expand_dims(x, 1) for x in _slices(tf.exp(2 * others), 1)]
        factors = [tf.expand_dims(x, -1) for x in _slices(rows[1], 2)]
        return tf.reduce_sum(_sum([a] * SLICES, b, factors, term), 2)

    return _map(block, [rows, weights], others, others.shape[1] * rows.shape[2])


def _sum(a: list[Tensor], b: list[Tensor], factors: list[Tensor], term: Term) -> Tensor:
    """Return the sum over slices of factors times terms of `r = 1 / (1 + a b)`."""
    total = 0.0  # one division for two slices: `1/x = y/(xy)`, `1/y = x/(xy)`
    for n in range(0, SLICES, 2):
        x, y = 1 + a[n] * b[n], 1 + a[n + 1] * b[n + 1]
        inverse = 1 / (x * y)
        total += factors[n] * term(y * inverse) + factors[n + 1] * term(x * inverse)
    return total


def _slices(x: Tensor, axis: int) -> list[Tensor]:
    """Return `SLICES` equal slices of an axis, which is padded with zeros at its end."""
    padding = [[0, -size % SLICES if n == axis else 0] for n, size in enumerate(x.shape)]
    slices: list[Tensor] = tf.split(tf.pad(x, padding), SLICES, axis)
    return slices


def _map(function: Callable[..., Tensor], rows: list[Tensor], others: Tensor, row: int) -> Tensor:
    """Return `function(rows, others)`, computed block by block to save memory.

    A block has several sentences, or several rows of one long sentence.

    Args:
        function: `(list of (b, n, ·), (b, m, ·)) -> (b, n, ·)`.
        rows: list of tensors `(B, T, ·)`.
        others: `(B, m, ·)`.
        row: number of values of `r` for one row.
    """
    batch, length = others.shape[0], rows[0].shape[1]
    count = max(1, BLOCK // (length * row))  # sentences in a block
    parts = math.ceil(length / max(1, BLOCK // row)) if count == 1 else 1  # blocks of a sentence
    size = math.ceil(length / parts)  # rows of a sentence in a block
    if batch:  # a slightly smaller block may divide the batch, which avoids padding
        count = min(count, batch)
        count = next((n for n in range(count, count // 2, -1) if batch % n == 0), count)
    else:
        batch = tf.shape(others)[0]

    def blocks(x: Tensor, missing: int, size: int) -> Tensor:
        x = tf.pad(x, [[0, -batch % count], [0, missing], [0, 0]])
        return tf.reshape(x, [-1, count, size, x.shape[2]])  # (blocks, count, size, ·)

    rows = [blocks(x, parts * size - length, size) for x in rows]
    others = blocks(others, 0, others.shape[1])
    results = tf.map_fn(
        lambda n: function([x[n] for x in rows], others[n // parts]),
        tf.range(tf.shape(rows[0])[0]),
        fn_output_signature=others.dtype,
    )
    # (blocks, count, size, ·) to (B, T, ·), without the padding
    return tf.reshape(results, [-1, parts * size, results.shape[-1]])[:batch, :length]
