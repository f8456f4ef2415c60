"""Additive scores without the `(B, Tq, Tv, units)` tensor.

`tanh(q + k) = 1 - 2r` with `r = 1 / (1 + e^{2q} e^{2k})`. The exponentials are taken once for each
query and once for each key. Each (query, key, unit) then costs a multiplication, an addition and
half a division: `1/a` and `1/b` are `b/(ab)` and `a/(ab)`. This pays only in a loop that XLA fuses,
which stores none of the terms. Elsewhere `tanh` is taken, a block of queries at a time. Both keep
their arguments alone for the gradient, which computes `r`, or `tanh`, again.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

from keras import ops

from keras_attention import backend
from keras_attention.backend.generic import NO_SECOND_DERIVATIVE
from keras_attention.fast.blocks import count_blocks, join_rows, map_batch, map_rows, split_rows

Tensor = Any
Gradients = Callable[..., Any]  # from the arguments and the upstream gradient

# Where the greatest q and k, if positive, sum to less, products of two `1 + e^{2q} e^{2k}` are
# finite in float32. An exponential that is 0 adds nothing to the 1.
LARGEST_SUM = 22.0
# Sums over an axis of so many slices are one fused loop over a slice.
SLICES = 8


def additive(query: Tensor, key: Tensor, scale: Tensor, path: str) -> Tensor:
    """Return `vᵀ tanh(q + k)` of float32 or wider; arguments and result as `scores.additive`."""
    query, key = _of_one_batch(query, key)
    if path == "in_place":
        found = backend.in_place_additive(query, key, scale)
        if found is not None:
            return found
    if path == "kernel":
        from keras_attention.backend import triton  # which a CPU need not have

        return triton.additive(query, key, scale)
    way = _way(path)

    @ops.custom_gradient
    def custom(*args: Tensor) -> tuple[Tensor, Gradients]:
        scores, backward = way(*args)

        def gradients(*upstreams: Tensor, upstream: Tensor = None) -> Any:
            return backward(*args, upstreams[0] if upstream is None else upstream)

        return scores, gradients

    return custom(query, key, scale)


def _way(path: str) -> Callable[..., tuple[Tensor, Gradients]]:
    """Return what gives scores and their gradients."""
    if path not in ("exponential", "compiled"):
        return _in_blocks
    functions = _compiled() if path == "compiled" else (exponential, exponential_gradients)
    return functools.partial(_exponential, *functions)


def _of_one_batch(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Repeat queries, or keys, of a single sentence for each sentence of the others."""
    if query.shape[0] is not None and query.shape[0] == key.shape[0]:
        return query, key
    of_query, of_key = ops.shape(query)[0], ops.shape(key)[0]
    known = isinstance(of_query, int) and isinstance(of_key, int)
    batch = max(of_query, of_key) if known else ops.where(of_query == 1, of_key, of_query)
    return tuple(ops.broadcast_to(x, (batch, *ops.shape(x)[1:])) for x in (query, key))


@functools.cache
def _compiled() -> tuple[Callable[..., Any], Callable[..., Any]]:
    return backend.compiled(exponential), backend.compiled(exponential_gradients)


def _guarded(
    forward: Callable[..., Any], backward: Gradients, *args: Tensor
) -> tuple[Tensor, Gradients]:
    """Return scores and their gradients, by `tanh` where exponentials have left float32."""
    scores, fits = forward(*args)

    def gradients(*args: Tensor) -> Any:
        return ops.cond(fits, lambda: backward(*args), lambda: blockwise_gradients(*args))

    return ops.cond(fits, lambda: scores, lambda: blockwise(*args)), gradients


def _exponential(
    forward: Callable[..., Any], backward: Gradients, *args: Tensor
) -> tuple[Tensor, Gradients]:
    """Return scores and their gradients, by `exponential` and `exponential_gradients`.

    No tape of TensorFlow sees the arguments, and the gradients have no gradients: the tensors that
    a loop keeps for second derivatives cannot leave a condition in XLA, nor XLA for the graph.
    """
    if not backend.builds_graph():
        return _guarded(forward, backward, *args)

    def unseen(args: tuple[Tensor, ...]) -> list[Tensor]:
        return [ops.stop_gradient(x) for x in args]

    def refuse(*upstreams: Tensor) -> Any:
        raise NotImplementedError(NO_SECOND_DERIVATIVE)

    scores, gradients = _guarded(forward, backward, *unseen(args))
    once = ops.custom_gradient(lambda *args: (gradients(*unseen(args)), refuse))
    return scores, once


def _in_blocks(*args: Tensor) -> tuple[Tensor, Gradients]:
    """Return scores and their gradients, by `tanh`."""
    return blockwise(*args), blockwise_gradients


# The exponential form, for XLA.


def exponential(query: Tensor, key: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scores `Σ v - 2 Σ_d v_d r_d`, and whether they are right: see `LARGEST_SUM`.

    Both in one pass: a check before it would read all queries and keys once more.
    """
    fits = ops.relu(ops.max(query)) + ops.relu(ops.max(key)) < LARGEST_SUM
    units = scale.shape[0]
    width = math.ceil(units / SLICES)
    scale = ops.pad(scale, [[0, SLICES * width - units]])
    scales = ops.split(scale, SLICES)

    def slices(x: Tensor) -> Any:  # (B, T, units) to SLICES of (B, T, width)
        x = ops.pad(ops.exp(2 * x), [[0, 0], [0, 0], [0, SLICES * width - units]])
        return ops.split(x, SLICES, -1)

    def block(query: Tensor, key: Tensor) -> Tensor:  # (b, n, units), (b, Tv, units) to (b, n, Tv)
        queries = [ops.expand_dims(x, 2) for x in slices(query)]
        keys = [ops.expand_dims(x, 1) for x in slices(key)]
        total: Tensor = 0  # (b, n, Tv, width)
        for first, second, inverse, u, v in _pairs(queries, keys, scales):
            total += (u * second + v * first) * inverse
        return backend.project(total, ops.ones((width,), total.dtype))

    return ops.sum(scale) - 2 * map_batch(block, [query], [key], ops.shape(key)[1] * width), fits


def exponential_gradients(
    query: Tensor, key: Tensor, scale: Tensor, upstream: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of `exponential`: `d tanh = 4 r (1 - r)`."""
    turned = ops.transpose(upstream, [0, 2, 1])
    # Row by row: a sum of all `r` is far greater than one of all `1 - 2r`, and rounded like it.
    hidden = ops.sum(upstream, -1, keepdims=True) - 2 * _weighted(_same, query, key, upstream)
    return (
        4 * scale * _weighted(_slope, query, key, upstream),
        4 * scale * _weighted(_slope, key, query, turned),
        ops.sum(hidden, [0, 1]),
    )


def _same(r: Tensor) -> Tensor:
    return r


def _slope(r: Tensor) -> Tensor:
    return r - r * r


def _weighted(
    term: Callable[[Tensor], Tensor], rows: Tensor, others: Tensor, weights: Tensor
) -> Tensor:
    """Return `Σ_j weights_ij term(r_ij)`, `(B, T, units)`, for rows i and others j."""
    length, units = ops.shape(others)[1], rows.shape[2]
    width = -(-length // SLICES)
    padding = [0, SLICES * width - length]

    # Blocks of (b, n, units), (b, n, T others) and (b, T others, units), to (b, n, units).

    def fused(rows: Tensor, weights: Tensor, others: Tensor) -> Tensor:
        others = ops.pad(ops.exp(2 * others), [[0, 0], padding, [0, 0]])
        others = ops.split(ops.expand_dims(others, 1), SLICES, 2)
        rows = ops.expand_dims(ops.exp(2 * rows), 2)
        weights = ops.expand_dims(ops.pad(weights, [[0, 0], [0, 0], padding]), -1)
        weights = ops.split(weights, SLICES, 2)
        total: Tensor = 0  # (b, n, width, units)
        for first, second, inverse, u, v in _pairs([rows] * SLICES, others, weights):
            total += u * term(second * inverse) + v * term(first * inverse)
        return ops.sum(total, 2)

    def stored(rows: Tensor, weights: Tensor, others: Tensor) -> Tensor:
        rows = ops.expand_dims(ops.exp(2 * rows), 2)
        r = 1 / (1 + rows * ops.expand_dims(ops.exp(2 * others), 1))  # (b, n, T others, units)
        return backend.matmul(ops.expand_dims(weights, 2), term(r))[:, :, 0]

    if backend.fuses_sums():
        return map_batch(fused, [rows, weights], [others], width * units)
    # Larger blocks than the caches hold: each costs time to start.
    return map_batch(stored, [rows, weights], [others], -(-length // 4) * units)


def _pairs(a: list[Tensor], b: list[Tensor], factors: list[Tensor]) -> Iterator[tuple[Tensor, ...]]:
    """Yield, of two slices at a time, both `1 + a b`, the inverse of their product, the factors."""
    for n in range(0, SLICES, 2):
        first, second = 1 + a[n] * b[n], 1 + a[n + 1] * b[n + 1]
        yield first, second, 1 / (first * second), factors[n], factors[n + 1]


# `tanh` in blocks of queries.


def blockwise(query: Tensor, key: Tensor, scale: Tensor) -> Tensor:
    """Return the scores `Σ_d v_d tanh(q_d + k_d)`."""

    def block(query: Tensor) -> Tensor:  # (B, n, units) to (B, n, Tv)
        hidden = ops.tanh(ops.expand_dims(query, 2) + ops.expand_dims(key, 1))
        return backend.project(hidden, scale)

    return map_rows(block, [query], ops.shape(key)[1] * scale.shape[0])


def blockwise_gradients(
    query: Tensor, key: Tensor, scale: Tensor, upstream: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of `blockwise`."""
    count = count_blocks(query, ops.shape(key)[1] * scale.shape[0])

    def block(inputs: tuple[Tensor, Tensor], sums: tuple[Tensor, Tensor]) -> Any:
        query, weights = inputs  # (B, n, units), (B, n, Tv)
        key_gradient, scale_gradient = sums
        g = ops.expand_dims(weights, 2)  # (B, n, 1, Tv)
        hidden = ops.tanh(ops.expand_dims(query, 2) + ops.expand_dims(key, 1))
        scale_gradient += ops.sum(backend.matmul(g, hidden), [0, 1, 2])
        slope = 1 - hidden * hidden  # (B, n, Tv, units)
        key_gradient += ops.sum(ops.expand_dims(weights, -1) * slope, 1)
        return backend.matmul(g, slope)[:, :, 0], (key_gradient, scale_gradient)

    query_gradient, (key_gradient, scale_gradient) = backend.scan(
        block,
        (ops.zeros_like(key), ops.zeros_like(scale)),
        [split_rows(query, count), split_rows(upstream, count)],
        query.dtype,
    )
    query_gradient = join_rows(query_gradient, ops.shape(query)[1])
    return scale * query_gradient, scale * key_gradient, scale_gradient
