"""Matrix products with constant kernels, for exported graphs.

In a product with a bias, TensorFlow arranges a constant kernel for the processor once; it arranges
a variable kernel again for every product. And a kernel in bfloat16 has half the bytes to read. 5
rows through kernels of 512 x 512, 1024 x 2048, 1024 x 512 and 512 x 8000 took 1.45 ms in float32,
0.95 ms with variables in bfloat16, and 0.47 ms with constants in bfloat16.

TensorFlow only. Processors without instructions for bfloat16 give the same results, but slowly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import keras
import numpy as np
from keras import ops

from keras_attention import backend
from keras_attention.search.arguments import top_k
from keras_attention.shapes import Tensor
from training.graphs import graph

TINY = 1e-30  # replaces a bias of 0, whose sum TensorFlow would remove from the graph
TABLE = 2**25  # most numbers in the table of a vocabulary's products


def product(
    kernel: Tensor, bias: Tensor | None = None, dtype: str = "bfloat16", single: bool = False
) -> Callable[[Tensor], Tensor]:
    """Return the product with a constant kernel.

    Args:
        kernel: `(m, n)`, eager.
        bias: `(n,)`, eager, or None for none.
        dtype: dtype of the factors and of the rounded product, "bfloat16" or "float32".
        single: whether some calls have one row and other calls many. In float32 they need different
            layouts of the kernel, but TensorFlow keeps the layout of the first call. So the product
            and the bias are not fused then, and TensorFlow keeps no layout.

    Returns:
        A function from `(rows, m)` to float32 `(rows, n)`. All its callers share one TensorFlow
        function, so a SavedModel holds the kernel once.
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
            y = y - tf.constant(-bias)  # TensorFlow would fuse a sum
        return tf.cast(y, tf.float32)

    return cast("Callable[[Tensor], Tensor]", times_kernel)


def shortlist(
    kernel: Tensor, bias: Tensor | None, k: int
) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Return a function that computes the `k` largest log-probabilities of a vocabulary.

    The whole product, in bfloat16, determines the `k` largest elements and the other elements'
    share of the normaliser. bfloat16 rounds to eight bits, so the `k` logits are computed again in
    float32.

    Args:
        kernel: `(m, V)`, eager.
        bias: `(V,)`, eager, or None for none.
        k: number of log-probabilities, at most V.

    Returns:
        A function from `(rows, m)` to float32 log-probabilities `(rows, k)` and int32 ids
        `(rows, k)`. As in `product`, it is one TensorFlow function.
    """
    import tensorflow as tf

    kernel, bias = _array(kernel, "bfloat16"), _bias(bias, kernel.shape[1], "float32")
    kernel = np.ascontiguousarray(kernel.T)  # (V, m): a token's weights are adjacent

    @graph(tf.TensorSpec([None, kernel.shape[1]]))
    def listed(x: Tensor) -> tuple[Tensor, Tensor]:
        rows = tf.constant(kernel)
        rough = tf.matmul(tf.cast(x, tf.bfloat16), rows, transpose_b=True)
        rough = tf.nn.bias_add(rough, tf.constant(bias.astype(kernel.dtype)))
        rough = tf.cast(rough, tf.float32)  # (rows, V)
        values, ids = top_k(rough, k)
        rows = tf.cast(tf.gather(rows, ids), tf.float32)  # (rows, k, m)
        logits = tf.reduce_sum(rows * x[:, None], -1) + tf.gather(tf.constant(bias), ids)
        rough_log_probs = tf.gather(tf.nn.log_softmax(rough), ids, batch_dims=1)
        log_probs = logits - (values - rough_log_probs)
        # Correct the normaliser: replace the rough logits by these logits.
        more = tf.reduce_sum(tf.exp(log_probs) - tf.exp(rough_log_probs), -1, keepdims=True)
        return log_probs - tf.math.log1p(more), ids

    return cast("Callable[[Tensor], tuple[Tensor, Tensor]]", listed)


def lookup(
    embeddings: keras.Variable, kernel: Tensor, bias: Tensor, dtype: str, single: bool
) -> tuple[Callable[[Tensor], Tensor], bool]:
    """Return a function that computes the products of tokens' embeddings with a constant kernel.

    If there are at most TABLE products, the function reads them from a table, rounded once.

    Args:
        embeddings: `(V, m)`.
        kernel: `(m, n)`, eager.
        bias: `(n,)`, eager.
        dtype: see `product`.
        single: see `product`.

    Returns:
        A function from int32 ids `(rows,)` to float32 `(rows, n)`, and whether the function has the
        table and so does not read the embeddings.
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
    """Return a NumPy array: in a graph, arrays become constants, but tensors become captures."""
    import tensorflow as tf

    return np.asarray(tf.cast(x, dtype).numpy())
