"""Products with constant kernels, for graphs that are exported.

TensorFlow lays a constant kernel of a product with a bias out for the processor once, one that is a
variable at every product; and in bfloat16 there are half the bytes to read. 5 rows through kernels
of 512 x 512, 1024 x 2048, 1024 x 512 and 512 x 8000 took 1.45 ms in float32, 0.95 ms with variables
in bfloat16, 0.47 ms with constants.

TensorFlow alone; processors without instructions for bfloat16 give the same answers, slowly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import keras
import numpy as np
from keras import ops

from keras_attention import backend
from keras_attention.search.arguments import top_k
from training.graphs import graph

Tensor = Any
TINY = 1e-30  # a sum with zeros would be taken out of the graph
TABLE = 2**25  # the most numbers that a vocabulary's products may be


def product(
    kernel: Tensor, bias: Tensor | None = None, dtype: str = "bfloat16", single: bool = False
) -> Callable[[Tensor], Tensor]:
    """Return the product with a constant kernel.

    Args:
        kernel: `(m, n)`, eager.
        bias: `(n,)`, eager, or None for none.
        dtype: what is multiplied and rounded to, "bfloat16" or "float32".
        single: whether some calls have a single row and others many. In float32 they want different
            layouts, of which TensorFlow keeps that of the first call: none is kept then.

    Returns:
        A function from `(rows, m)` to float32 `(rows, n)`. It is one TensorFlow function wherever
        it is called: a SavedModel holds the kernel once.
    """
    import tensorflow as tf

    fused = dtype == "bfloat16" or not single
    if fused or bias is not None:
        bias = _bias(bias, kernel.shape[1], dtype)
    kernel = _array(kernel, dtype)

    @graph(tf.TensorSpec([None, kernel.shape[0]]))
    def times_kernel(x: Tensor) -> Tensor:
        y = tf.matmul(tf.cast(x, dtype), tf.constant(kernel))
        if fused:
            y = tf.nn.bias_add(y, tf.constant(bias))
        elif bias is not None:
            y = y - tf.constant(-bias)  # a sum with a constant would be fused
        return tf.cast(y, tf.float32)

    return cast("Callable[[Tensor], Tensor]", times_kernel)


def shortlist(
    kernel: Tensor, bias: Tensor | None, k: int
) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Return log-probabilities from a vocabulary's constant kernel, of the greatest alone.

    All of the product in bfloat16 says which elements are the greatest, and what the others add to
    the normaliser. A product in bfloat16 is rounded to eight bits: those `k` are computed again in
    float32.

    Args:
        kernel: `(m, V)`, eager.
        bias: `(V,)`, eager, or None for none.
        k: how many, at most V.

    Returns:
        A function from `(rows, m)` to float32 log-probabilities `(rows, k)` and int32 ids
        `(rows, k)`; one TensorFlow function, as that of `product`.
    """
    import tensorflow as tf

    kernel, bias = _array(kernel, "bfloat16"), _bias(bias, kernel.shape[1], "float32")
    kernel = np.ascontiguousarray(kernel.T)  # a token's weights next to one another

    @graph(tf.TensorSpec([None, kernel.shape[1]]))
    def listed(x: Tensor) -> tuple[Tensor, Tensor]:
        rows = tf.constant(kernel)
        rough = tf.matmul(tf.cast(x, tf.bfloat16), rows, transpose_b=True)
        rough = tf.nn.bias_add(rough, tf.constant(bias.astype(kernel.dtype)))
        rough = tf.cast(rough, tf.float32)
        values, ids = top_k(rough, k)
        rows = tf.cast(tf.gather(rows, ids), tf.float32)  # (rows, k, m)
        logits = tf.reduce_sum(rows * x[:, None], -1) + tf.gather(tf.constant(bias), ids)
        rough_log_probs = tf.gather(tf.nn.log_softmax(rough), ids, batch_dims=1)
        log_probs = logits - (values - rough_log_probs)
        # The normaliser with these logits instead of the rough ones.
        more = tf.reduce_sum(tf.exp(log_probs) - tf.exp(rough_log_probs), -1, keepdims=True)
        return log_probs - tf.math.log1p(more), ids

    return cast("Callable[[Tensor], tuple[Tensor, Tensor]]", listed)


def lookup(
    embeddings: keras.Variable, kernel: Tensor, bias: Tensor, dtype: str, single: bool
) -> tuple[Callable[[Tensor], Tensor], bool]:
    """Return the products of embeddings `(V, m)` with a constant kernel `(m, n)`, see `product`.

    Where they are not too many they are a table, rounded once. Return a function from int32 ids
    `(rows,)` to float32 `(rows, n)`, and whether it has the table, and needs no embeddings.
    """
    import tensorflow as tf

    if embeddings.shape[0] * kernel.shape[1] > TABLE:
        times_kernel = product(kernel, bias, dtype, single)
        return lambda ids: times_kernel(backend.gather(embeddings, ids)), False
    table = _array(ops.matmul(embeddings.value, kernel) + bias, dtype)

    @graph(tf.TensorSpec([None], tf.int32))
    def look_up(ids: Tensor) -> Tensor:
        return tf.cast(tf.gather(tf.constant(table), ids), tf.float32)

    return look_up, True


def _bias(bias: Tensor | None, size: int, dtype: str) -> np.ndarray:
    return _array(np.full(size, TINY, "float32") if bias is None else bias, dtype)


def _array(x: Tensor, dtype: str) -> np.ndarray:
    """An array: a function captures tensors as arguments, of arrays it makes constants."""
    import tensorflow as tf

    return np.asarray(tf.cast(x, dtype).numpy())
