"""Additive scores as functions that XLA compiles, on TensorFlow: see `generic.additive`.

`tanh(q + k) = 1 - 2r` with `r = 1 / (1 + e^{2q} e^{2k})`: the exponentials are taken once for each
query and once for each key. XLA computes `r` where it is summed, over `SLICES` of an axis at once,
for one block of sentences or of rows after the other. The gradients compute `r` again.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from keras_attention.backend.tensorflow_graphs import graph

Tensor = Any
Pairs = Iterator[tuple[Tensor, Tensor]]
Term = Callable[[Tensor], Tensor]

BLOCK = 2**21  # values of `r` in a block, an eighth of which is stored
SLICES = 8
# Below this sum of the greatest q and k, products of two `1 + e^{2q} e^{2k}` are finite in float32.
LARGEST_SUM = 22.0


@tf.custom_gradient
def additive(query: Tensor, key: Tensor, scale: Tensor) -> tuple[Tensor, Callable[[Tensor], Any]]:
    """Return `vᵀ tanh(q + k)` with derivatives of any order, `(B, Tq, Tv)`."""
    scores = _scores(*_unseen(query, key, scale))
    return scores, functools.partial(_gradients, query, key, scale)


@tf.custom_gradient
def _gradients(query: Tensor, key: Tensor, scale: Tensor, upstream: Tensor) -> Any:
    """Return the gradients of `additive`; their own gradients are those of the formula's."""
    upstream = tf.ensure_shape(upstream, [query.shape[0], query.shape[1], key.shape[1]])
    args = query, key, scale, upstream

    def second(*upstreams: Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(args)
            hidden = tf.tanh(query[:, :, None] + key[:, None])
            weights = upstream[..., None]
            slope = scale * weights * (1 - hidden * hidden)
            of_scale = tf.reduce_sum(weights * hidden, [0, 1, 2])
            first = tf.reduce_sum(slope, 2), tf.reduce_sum(slope, 1), of_scale
        return tape.gradient(first, args, upstreams, unconnected_gradients="zero")

    return _first_gradients(*_unseen(*args)), second


def _unseen(*args: Tensor) -> list[Tensor]:
    """Return tensors that no tape watches: XLA compiles no loop that keeps its steps for one."""
    return [tf.stop_gradient(x) for x in args]


@graph(jit_compile=True)
def _scores(query: Tensor, key: Tensor, scale: Tensor) -> Tensor:
    """Return `Σ v - 2 Σ_d v_d r_d`."""

    def block(finite: bool, queries: list[Tensor], key: Tensor) -> Tensor:
        a = [tf.expand_dims(x, 2) for x in _slices(_prepared(queries[0], finite), 2)]
        b = [tf.expand_dims(x, 1) for x in _slices(_prepared(key, finite), 2)]
        total = _sum(
            _pairs(a, b, finite), _slices(scale, 0), lambda r: r
        )  # (b, n, Tv, units / SLICES)
        return tf.linalg.matvec(total, tf.ones(total.shape[-1], total.dtype))

    row = key.shape[1] * query.shape[2]
    sums = _where_finite(query, key, lambda finite: _map(block, finite, [query], key, row))
    return tf.reduce_sum(scale) - 2 * sums


@graph(jit_compile=True)
def _first_gradients(query: Tensor, key: Tensor, scale: Tensor, upstream: Tensor) -> Any:
    """Return the gradients of `_scores`, by `d tanh = 4 r (1 - r)`."""

    def gradients(finite: bool) -> tuple[Tensor, ...]:
        turned = tf.transpose(upstream, [0, 2, 1])
        return (
            _weighted(finite, query, key, upstream, lambda r: r - r * r),
            _weighted(finite, key, query, turned, lambda r: r - r * r),
            _weighted(finite, query, key, upstream, lambda r: r),
        )

    of_query, of_key, of_scale = _where_finite(query, key, gradients)
    # Row by row: a sum of all `r` is far greater than one of all `1 - 2r`, and rounded like it.
    of_scale = tf.reduce_sum(upstream, -1, keepdims=True) - 2 * of_scale
    return 4 * scale * of_query, 4 * scale * of_key, tf.reduce_sum(of_scale, [0, 1])


def _weighted(finite: bool, rows: Tensor, others: Tensor, weights: Tensor, term: Term) -> Tensor:
    """Return `Σ_j weights_ij term(r_ij)`, `(B, T, units)`, for rows i and others j."""

    def block(finite: bool, rows: list[Tensor], others: Tensor) -> Tensor:
        a = tf.expand_dims(_prepared(rows[0], finite), 2)
        b = [tf.expand_dims(x, 1) for x in _slices(_prepared(others, finite), 1)]
        factors = [tf.expand_dims(x, -1) for x in _slices(rows[1], 2)]
        return tf.reduce_sum(_sum(_pairs([a] * SLICES, b, finite), factors, term), 2)

    return _map(block, finite, [rows, weights], others, others.shape[1] * rows.shape[2])


def _where_finite(query: Tensor, key: Tensor, function: Callable[[bool], Any]) -> Any:
    """Return a function of whether products of exponentials are finite in float32."""
    largest = sum(tf.nn.relu(tf.reduce_max(x)) for x in (query, key))
    return tf.cond(largest < LARGEST_SUM, lambda: function(True), lambda: function(False))


def _prepared(x: Tensor, finite: bool) -> Tensor:
    return tf.exp(2 * x) if finite else -2 * x


def _pairs(a: list[Tensor], b: list[Tensor], finite: bool) -> Pairs:
    """Yield `r` of two slices at a time: of exponentials with one division, `1/x = y/(xy)`."""
    for n in range(0, SLICES, 2):
        if finite:
            x, y = 1 + a[n] * b[n], 1 + a[n + 1] * b[n + 1]
            inverse = 1 / (x * y)
            yield y * inverse, x * inverse
        else:
            yield tf.sigmoid(a[n] + b[n]), tf.sigmoid(a[n + 1] + b[n + 1])


def _sum(pairs: Pairs, factors: list[Tensor], term: Term) -> Tensor:
    """Return the sum of factors times terms over the slices."""
    both = zip(pairs, factors[::2], factors[1::2], strict=True)
    return sum(u * term(x) + v * term(y) for (x, y), u, v in both)


def _slices(x: Tensor, axis: int) -> list[Tensor]:
    """Split an axis into `SLICES`, with zeros at the end of the last."""
    padding = [[0, -size % SLICES if n == axis else 0] for n, size in enumerate(x.shape)]
    slices: list[Tensor] = tf.split(tf.pad(x, padding), SLICES, axis)
    return slices


def _map(
    function: Callable[..., Tensor], finite: bool, rows: list[Tensor], others: Tensor, row: int
) -> Tensor:
    """Apply a function to one block of sentences, or of rows of a long sentence, after the other.

    It makes `(b, n, ·)` of finite, a list of `(b, n, ·)` and others `(b, m, ·)`; a row has so many
    values of `r`.
    """
    batch, length = others.shape[0], rows[0].shape[1]
    count = max(1, BLOCK // (length * row))  # sentences of a block
    parts = math.ceil(length / max(1, BLOCK // row)) if count == 1 else 1  # of a sentence
    size = math.ceil(length / parts)
    if batch:  # without padding where slightly smaller blocks allow it
        count = min(count, batch)
        count = next((n for n in range(count, count // 2, -1) if batch % n == 0), count)
    else:
        batch = tf.shape(others)[0]

    def blocks(x: Tensor, missing: int, size: int) -> Tensor:
        x = tf.pad(x, [[0, -batch % count], [0, missing], [0, 0]])
        return tf.reshape(x, [-1, count, size, x.shape[2]])

    rows = [blocks(x, parts * size - length, size) for x in rows]
    others = blocks(others, 0, others.shape[1])
    results = tf.map_fn(
        lambda n: function(finite, [x[n] for x in rows], others[n // parts]),
        tf.range(tf.shape(rows[0])[0]),
        fn_output_signature=others.dtype,
    )
    return tf.reshape(results, [-1, parts * size, results.shape[-1]])[:batch, :length]
