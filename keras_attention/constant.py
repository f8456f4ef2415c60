"""Steps of an attention cell with constant kernels in bfloat16, for searches that are exported.

TensorFlow lays a constant kernel of a product with a bias out for the processor once, one that is a
variable at every product; and in bfloat16 there are half the bytes to read. 5 rows through kernels
of 512 x 512, 1024 x 2048, 1024 x 512 and 512 x 8000 took 1.45 ms in float32, 0.95 ms with variables
in bfloat16, 0.47 ms with constants. TensorFlow alone; processors without instructions for bfloat16
give the same answers, slowly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attention import hoisted
from keras_attention.additive import AdditiveAttention
from keras_attention.cell import AttentionCell, State
from keras_attention.top_k import top_k

Tensor = Any
TINY = 1e-30  # a sum with zeros would be taken out of the graph


def product(kernel: Tensor, bias: Tensor | None = None) -> Callable[[Tensor], Tensor]:
    """Return the product with a constant kernel in bfloat16.

    Args:
        kernel: `(m, n)`, eager.
        bias: `(n,)`, eager, or None for none.

    Returns:
        A function from `(rows, m)` to float32 `(rows, n)`. It is one TensorFlow function wherever
        it is called: a SavedModel holds the kernel once.
    """
    import tensorflow as tf

    kernel, bias = _array(kernel, "bfloat16"), _bias(bias, kernel.shape[1], "bfloat16")

    @tf.function(input_signature=[tf.TensorSpec([None, kernel.shape[0]])], autograph=False)
    def times_kernel(x):
        y = tf.matmul(tf.cast(x, tf.bfloat16), tf.constant(kernel))
        # Only the kernel of a product that is fused with a bias stays as it was laid out.
        return tf.cast(tf.nn.bias_add(y, tf.constant(bias)), tf.float32)

    return times_kernel


def shortlist(
    kernel: Tensor, bias: Tensor | None, k: int
) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Return log-probabilities from a vocabulary's constant kernel, of the greatest alone.

    All of the product in bfloat16 says which elements are the greatest, and what the others add to
    the normaliser. A product in bfloat16 is rounded to eight bits: those `k` are computed again in
    float32.

    Args:
        kernel: `(V, m)`, a row for each token, eager.
        bias: `(V,)`, eager, or None for none.
        k: how many, at most V.

    Returns:
        A function from `(rows, m)` to float32 log-probabilities `(rows, k)` and int32 ids
        `(rows, k)`; one TensorFlow function, as that of `product`.
    """
    import tensorflow as tf

    kernel, bias = _array(kernel, "bfloat16"), _bias(bias, kernel.shape[0], "float32")

    @tf.function(input_signature=[tf.TensorSpec([None, kernel.shape[1]])], autograph=False)
    def listed(x):
        rows = tf.constant(kernel)
        rough = tf.matmul(tf.cast(x, tf.bfloat16), rows, transpose_b=True)
        rough = tf.nn.bias_add(rough, tf.constant(bias.astype(kernel.dtype)))
        rough = tf.cast(rough, tf.float32)
        values, ids = (found[:, 0] for found in top_k(rough[:, None], k))
        rows = tf.cast(tf.gather(rows, ids), tf.float32)  # (rows, k, m)
        logits = tf.reduce_sum(rows * x[:, None], -1) + tf.gather(tf.constant(bias), ids)
        rough_log_probs = tf.nn.log_softmax(rough)
        rough_log_probs = tf.gather(rough_log_probs, ids, batch_dims=1)
        log_probs = logits - (values - rough_log_probs)
        # The normaliser with these logits instead of the rough ones.
        more = tf.reduce_sum(tf.exp(log_probs) - tf.exp(rough_log_probs), -1, keepdims=True)
        return log_probs - tf.math.log1p(more), ids

    return listed


def _bias(bias: Tensor | None, size: int, dtype: str) -> np.ndarray:
    return _array(np.full(size, TINY, "float32") if bias is None else bias, dtype)


def _array(x: Tensor, dtype: str) -> np.ndarray:
    """An array: a function captures tensors as arguments, of arrays it makes constants."""
    import tensorflow as tf

    return tf.cast(x, dtype).numpy()


def supports(layer: AttentionCell) -> bool:
    """Whether `ConstantStep` can stand in for the layer's `step`."""
    cells = getattr(layer.cell, "cells", [layer.cell])
    return not (layer.several or layer.gate) and all(hoisted.supports(cell) for cell in cells)


class ConstantStep:
    """A step of a built `AttentionCell` or `AttentionRNN` as its weights are now.

    Products are in bfloat16; scores, distributions, contexts and states stay as they are.

    Args:
        layer: one that `supports` accepts.

    Attributes:
        taken: the layer's weights that are constants now.
    """

    def __init__(self, layer: AttentionCell) -> None:
        self._layer = layer
        self._cells = getattr(layer.cell, "cells", [layer.cell])
        self._times = [_products(cell) for cell in self._cells]
        self.taken = [weight for cell in self._cells for weight in cell.weights]
        self._query = self._vector = None
        if type(layer.attention) is AdditiveAttention and layer.attention.num_heads == 1:
            self._query = product(layer.attention.query_kernel.value)
            self.taken.append(layer.attention.query_kernel)
        if layer.output_kernel is not None:
            self._vector = product(layer.output_kernel.value)
            self.taken.append(layer.output_kernel)

    def __call__(self, inputs: Tensor, memory: Any, state: State) -> tuple[Tensor, Tensor, State]:
        """Take one step: see `AttentionCell.step`."""
        layer = self._layer
        fed = [inputs, state.output] if layer.input_feeding else [inputs]
        if layer.order == "bahdanau":
            query = layer._query(state.cell)
            context, weights, attention = self._look(query, memory, state.attention)
            output, cell = self._advance([*fed, context], state.cell)
        else:
            output, cell = self._advance(fed, state.cell)
            context, weights, attention = self._look(output, memory, state.attention)
        output = ops.concatenate([context, output], axis=-1)
        if self._vector:
            output = ops.cast(ops.tanh(self._vector(output)), layer.compute_dtype)
        return output, weights, State(cell, attention, output if layer.input_feeding else ())

    def _look(self, query: Tensor, memory: Any, state: Any) -> tuple[Tensor, Tensor, Any]:
        attention = self._layer.attention
        if self._query is None:
            return attention.look(query, memory, state, {})
        batch, length = ops.shape(memory.value)[:2]
        query = ops.cast(self._query(query), attention.compute_dtype)
        query = ops.reshape(query, (batch, -1, query.shape[-1]))  # beams share a memory row
        context, weights, state = attention.attend(query, memory, state, None, {})
        return (
            ops.reshape(context, (-1, context.shape[-1])),
            ops.reshape(weights, (-1, length)),
            state,
        )

    def _advance(self, inputs: list[Tensor], state: Any) -> tuple[Tensor, Any]:
        """Call the cell, or one after the other those of a stack."""
        stacked = isinstance(self._layer.cell, keras.layers.StackedRNNCells)
        states, new = state if stacked else [state], []
        for cell, times, old in zip(self._cells, self._times, states, strict=True):
            old = list(old) if isinstance(old, (list, tuple)) else [old]
            if isinstance(cell, keras.layers.GRUCell):
                gates, inner = times[0](ops.concatenate(inputs, axis=-1)), times[1](old[0])
                now = hoisted.gru_step(cell, gates, inner, old)[0]
            else:
                gates = times[0](ops.concatenate([*inputs, old[0]], axis=-1))
                lstm = isinstance(cell, keras.layers.LSTMCell)
                now = hoisted.lstm_step(cell, gates, old) if lstm else [cell.activation(gates)]
            now = [ops.cast(x, y.dtype) for x, y in zip(now, old, strict=True)]
            inputs = [now[0]]
            new.append(now)
        packed = keras.tree.pack_sequence_as(state, keras.tree.flatten(new))
        return inputs[0], packed


def _products(cell: Any) -> list[Callable[[Tensor], Tensor]]:
    """Return the products of a cell: one of input and state together where it allows that."""
    if isinstance(cell, keras.layers.GRUCell):
        bias, recurrent_bias = ops.unstack(cell.bias.value)
        return [
            product(cell.kernel.value, bias),
            product(cell.recurrent_kernel.value, recurrent_bias),
        ]
    kernel = ops.concatenate([cell.kernel.value, cell.recurrent_kernel.value], axis=0)
    return [product(kernel, cell.bias.value)]
