"""Additive scores on TensorFlow without the `(B, Tq, Tv, units)` tensor.

`tanh(q + k) = 1 - 2r` with `r = 1 / (1 + e^{2q} e^{2k})`: the exponentials are taken once for each
query and once for each key, and a (query, key, unit) costs a multiplication, an addition and, since
`1/a` and `1/b` are `b/(ab)` and `a/(ab)`, half a division. That gains only where what is summed is
never stored, in a loop that XLA fuses; elsewhere `tanh` itself is taken, a block of queries at a
time. Neither keeps anything for the gradient but its arguments: `r`, or `tanh`, is computed again.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import record
from tensorflow.python.ops.control_flow_util_v2 import in_while_loop_defun

from keras_attention import scores
from keras_attention.backend import under_xla

Tensor = Any

# Where |q| + |k| stays below it, products of two `1 + e^{2q} e^{2k}` are finite in float32.
RANGE = 22.0
# Numbers in a block: about what the caches hold. What is smaller as a whole stays as it is.
BLOCK = 2**20
# Sums over an axis of so many slices are one fused loop over a slice.
SLICES = 8


def additive(query: Tensor, key: Tensor, scale: Tensor) -> Tensor:
    """Return `vᵀ tanh(q + k)`; arguments and result as those of `scores.additive`.

    Half precision is computed in float32. The exponential form is used inside a function that XLA
    compiles, and compiled by itself where `_compiles` allows it.
    """
    dtype = query.dtype
    wide = tf.float32 if dtype in (tf.float16, tf.bfloat16) else dtype
    query, key, scale = (tf.cast(x, wide) for x in (query, key, scale))
    query, key = (tf.ensure_shape(x, [None, None, scale.shape[0]]) for x in (query, key))
    lengths = query.shape[1], key.shape[1]
    batch = query.shape[0] or key.shape[0]
    known = None not in (*lengths, batch)
    small = known and math.prod([batch, *lengths, *scale.shape]) <= BLOCK
    if small or 1 in lengths or _in_loop():  # a step of a loop has few queries
        return tf.cast(scores.plain_additive(query, key, scale), dtype)

    if under_xla():
        forward, backward = _guarded(exponential, exponential_gradients)
    elif _compiles(query, key, scale):
        forward, backward = _guarded(*_compiled())
    else:
        forward, backward = blockwise, blockwise_gradients

    @tf.custom_gradient
    def custom(query, key, scale):
        return forward(query, key, scale), lambda g: backward(query, key, scale, g)

    return tf.cast(custom(query, key, scale), dtype)


def _in_loop() -> bool:
    graph = tf.compat.v1.get_default_graph()
    while graph is not None and not in_while_loop_defun(graph):
        graph = getattr(graph, "outer_graph", None)
    return graph is not None


def _compiles(query: Tensor, key: Tensor, scale: Tensor) -> bool:
    """Whether to compile the scores by XLA in a function that is not compiled as a whole.

    Each new shape is compiled anew, which takes seconds: only for known lengths, and never eagerly.
    The batch may be unknown where a gradient is recorded; in training it rarely changes. What is
    exported must not need XLA: a function that is traced for its own sake, without a call, does
    not get it. One that was called before with the shapes of its signature has it already.
    """
    if tf.executing_eagerly() or None in (query.shape[1], key.shape[1]):
        return False
    recorded = record.could_possibly_record() and record.should_record_backprop([query, key, scale])
    batch_known = None not in (query.shape[0], key.shape[0])
    return (batch_known or recorded) and not _traced_for_export()


def _traced_for_export() -> bool:
    """Whether `get_concrete_function`, on which every way to export rests, asks for the trace."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != "get_concrete_function":
        frame = frame.f_back
    return frame is not None


@functools.cache
def _compiled() -> tuple[Callable, Callable]:
    compile_ = functools.partial(tf.function, jit_compile=True, autograph=False)
    return compile_(exponential), compile_(exponential_gradients)


def _guarded(forward: Callable, backward: Callable) -> tuple[Callable, Callable]:
    """Take `tanh` in blocks where the exponentials would leave float32."""

    def fits(query, key):
        return tf.reduce_max(tf.abs(query)) + tf.reduce_max(tf.abs(key)) < RANGE

    def guarded_forward(*args):
        return tf.cond(fits(*args[:2]), lambda: forward(*args), lambda: blockwise(*args))

    def guarded_backward(*args):
        return tf.cond(fits(*args[:2]), lambda: backward(*args), lambda: blockwise_gradients(*args))

    return guarded_forward, guarded_backward


# The exponential form, for XLA.


def exponential(query: Tensor, key: Tensor, scale: Tensor) -> Tensor:
    """Return the scores `Σ v - 2 Σ_d v_d r_d`, where `|q| + |k| < RANGE`."""
    units = scale.shape[0]
    width = math.ceil(units / SLICES)
    padding = [[0, SLICES * width - units]]
    scale = tf.split(tf.pad(scale, padding), SLICES)
    keys = tf.split(tf.pad(tf.exp(2 * key), [[0, 0], [0, 0], *padding])[:, None], SLICES, -1)

    def block(query):  # (B, n, units) to (B, n, Tv)
        queries = tf.split(
            tf.pad(tf.exp(2 * query), [[0, 0], [0, 0], *padding])[:, :, None], SLICES, -1
        )
        total = _sum_of_pairs(lambda r, v: v * r, queries, keys, scale)  # (B, n, Tv, width)
        return tf.linalg.matvec(total, tf.ones(width, total.dtype))

    sums = _map_rows(block, [query], _size(key, 1) * width)
    return sum(map(tf.reduce_sum, scale)) - 2 * sums


def exponential_gradients(
    query: Tensor, key: Tensor, scale: Tensor, upstream: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of `exponential`: `d tanh = 4 r (1 - r)`."""
    turned = tf.transpose(upstream, [0, 2, 1])
    slope = functools.partial(_weighted_rows, lambda r, g: g * (r - r * r))
    hidden = functools.partial(_weighted_rows, lambda r, g: g * (1 - 2 * r), total=True)
    return (
        4 * scale * slope(query, key, upstream),
        4 * scale * slope(key, query, turned),
        hidden(query, key, upstream),
    )


def _weighted_rows(
    term: Callable, rows: Tensor, others: Tensor, weights: Tensor, total: bool = False
) -> Tensor:
    """Return `Σ_j term(r_ij, g_ij)`, `(B, T, units)`, for rows i and others j.

    With `total` it is summed over the batch and the rows as well, `(units,)`.
    """
    length = _size(others, 1)
    width = -(-length // SLICES)
    padding = [0, SLICES * width - length]
    others = tf.pad(tf.exp(2 * others), [[0, 0], padding, [0, 0]])
    others = tf.split(others[:, None], SLICES, 2)

    def block(args):  # (B, n, units), (B, n, T others) to (B, n, units)
        rows, weights = args
        rows = tf.exp(2 * rows)[:, :, None]
        weights = tf.pad(weights, [[0, 0], [0, 0], padding])[..., None]
        weights = tf.split(weights, SLICES, 2)
        sums = _sum_of_pairs(term, [rows] * SLICES, others, weights)
        return tf.reduce_sum(sums, [0, 1, 2])[None, None] if total else tf.reduce_sum(sums, 2)

    found = _map_rows(block, [rows, weights], width * rows.shape[2])
    return tf.reduce_sum(found, [0, 1]) if total else found


def _sum_of_pairs(term: Callable, a: list, b: list, factors: list) -> Tensor:
    """Return the sum over all slices of `term(1 / (1 + a b), factor)`."""
    total = 0
    for n in range(0, SLICES, 2):
        first, second = 1 + a[n] * b[n], 1 + a[n + 1] * b[n + 1]
        inverse = 1 / (first * second)
        total += term(second * inverse, factors[n]) + term(first * inverse, factors[n + 1])
    return total


def _map_rows(function: Callable, arrays: list, row_size: Any) -> Tensor:
    """Apply a function to blocks of axis 1, of which each row makes `row_size` numbers a batch."""
    count = _count_blocks(arrays[0], row_size)
    blocks = [_blocks(x, count) for x in arrays]
    blocks = blocks[0] if len(blocks) == 1 else tuple(blocks)
    result = tf.map_fn(function, blocks, fn_output_signature=arrays[0].dtype)
    return _joined(result, _size(arrays[0], 1))


# `tanh` in blocks of queries.


def blockwise(query: Tensor, key: Tensor, scale: Tensor) -> Tensor:
    """Return the scores `Σ_d v_d tanh(q_d + k_d)`."""

    def block(query):  # (B, n, units) to (B, n, Tv)
        return tf.linalg.matvec(tf.tanh(query[:, :, None] + key[:, None]), scale)

    return _map_rows(block, [query], _size(key, 1) * scale.shape[0])


def blockwise_gradients(
    query: Tensor, key: Tensor, scale: Tensor, upstream: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of `blockwise`."""
    count = _count_blocks(query, _size(key, 1) * scale.shape[0])
    queries, weights = _blocks(query, count), _blocks(upstream, count)

    def body(n, queries_gradient, key_gradient, scale_gradient):
        g = weights[n][:, :, None]  # (B, n, 1, Tv)
        hidden = tf.tanh(queries[n][:, :, None] + key[:, None])  # (B, n, Tv, units)
        scale_gradient += tf.reduce_sum(tf.matmul(g, hidden), [0, 1, 2])
        slope = 1 - hidden * hidden
        queries_gradient = queries_gradient.write(n, tf.matmul(g, slope)[:, :, 0])
        key_gradient += tf.reduce_sum(weights[n][..., None] * slope, 1)
        return n + 1, queries_gradient, key_gradient, scale_gradient

    _, queries_gradient, key_gradient, scale_gradient = tf.while_loop(
        lambda n, *_: n < count,
        body,
        (
            tf.constant(0),
            tf.TensorArray(query.dtype, count),
            tf.zeros_like(key),
            tf.zeros_like(scale),
        ),
        maximum_iterations=count,
    )
    query_gradient = _joined(queries_gradient.stack(), _size(query, 1))
    return scale * query_gradient, scale * key_gradient, scale_gradient


# Blocks of rows.


def _size(x: Tensor, axis: int) -> Any:
    return tf.shape(x)[axis] if x.shape[axis] is None else x.shape[axis]


def _count_blocks(rows: Tensor, row_size: Any) -> Any:
    """Return into how many blocks to split the rows `(B, T, ·)`."""
    total = _size(rows, 0) * _size(rows, 1) * row_size
    largest = tf.maximum if tf.is_tensor(total) else max
    smallest = tf.minimum if tf.is_tensor(total) else min
    return largest(1, smallest(_size(rows, 1), -(-total // BLOCK)))


def _blocks(x: Tensor, count: Any) -> Tensor:
    """Split `(B, T, dim)` to `(count, B, n, dim)`, with zeros at the end of the last."""
    length = _size(x, 1)
    n = -(-length // count)
    x = tf.pad(x, [[0, 0], [0, count * n - length], [0, 0]])
    x = tf.reshape(x, [_size(x, 0), count, n, _size(x, 2)])
    return tf.transpose(x, [1, 0, 2, 3])


def _joined(blocks: Tensor, length: Any) -> Tensor:
    """Join `(count, B, n, dim)` to `(B, length, dim)`."""
    count, batch, n, dim = (_size(blocks, axis) for axis in range(4))
    x = tf.reshape(tf.transpose(blocks, [1, 0, 2, 3]), [batch, count * n, dim])
    return x[:, :length]
