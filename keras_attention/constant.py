"""Steps of an attention cell with constant kernels, for searches that are exported.

TensorFlow lays a constant kernel of a product with a bias out for the processor once, one that is a
variable at every product; and in bfloat16 there are half the bytes to read. 5 rows through kernels
of 512 x 512, 1024 x 2048, 1024 x 512 and 512 x 8000 took 1.45 ms in float32, 0.95 ms with variables
in bfloat16, 0.47 ms with constants.

A context is an average of the memory, and the product of an average is the average of products:
what contexts are multiplied by, the whole memory is multiplied by once, before the first step.

TensorFlow alone; processors without instructions for bfloat16 give the same answers, slowly.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attention import hoisted
from keras_attention.additive import AdditiveAttention
from keras_attention.attention import Memory
from keras_attention.cell import AttentionCell, State
from keras_attention.top_k import top_k

Tensor = Any
TINY = 1e-30  # a sum with zeros would be taken out of the graph


def product(
    kernel: Tensor, bias: Tensor | None = None, dtype: str = "bfloat16", fused: bool = True
) -> Callable[[Tensor], Tensor]:
    """Return the product with a constant kernel.

    Args:
        kernel: `(m, n)`, eager.
        bias: `(n,)`, eager, or None for none.
        dtype: what is multiplied and rounded to, "bfloat16" or "float32".
        fused: whether the bias is added in the product, whose kernel then stays as it was laid out
            for the first call. In float32 one row wants another layout than many: a kernel that
            both use is better not kept.

    Returns:
        A function from `(rows, m)` to float32 `(rows, n)`. It is one TensorFlow function wherever
        it is called: a SavedModel holds the kernel once.
    """
    import tensorflow as tf

    kernel, bias = _array(kernel, dtype), _bias(bias, kernel.shape[1], dtype)

    @tf.function(input_signature=[tf.TensorSpec([None, kernel.shape[0]])], autograph=False)
    def times_kernel(x):
        y = tf.matmul(tf.cast(x, dtype), tf.constant(kernel))
        # A sum with a constant would be fused, a difference is not.
        y = tf.nn.bias_add(y, tf.constant(bias)) if fused else y - tf.constant(-bias)
        return tf.cast(y, tf.float32)

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
        values, ids = top_k(rough, k)
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
    if layer.several or layer.gate or layer.attention.num_heads > 1:
        return False
    return all(hoisted.supports(cell) for cell in _cells(layer))


class ConstantStep:
    """A step of a built `AttentionCell` or `AttentionRNN` as its weights are now.

    Scores, distributions, averages, states and the state's part of the attentional vector are in
    float32 whatever the dtype of the other products is.

    Args:
        layer: one that `supports` accepts.
        dtype: of the products, "bfloat16" or "float32".
        fused: whether kernels stay as they were laid out, see `product`.

    Attributes:
        taken: the layer's weights that are constants now.
    """

    def __init__(self, layer: AttentionCell, dtype: str = "bfloat16", fused: bool = True) -> None:
        self._layer, size = layer, layer.context_size
        times = functools.partial(product, dtype=dtype, fused=fused)
        self.taken = [weight for cell in _cells(layer) for weight in cell.weights]
        kernels = [cell.kernel.value for cell in _cells(layer)]
        of_context = {}  # what contexts alone are multiplied by
        if layer.order == "bahdanau":
            kernels[0], of_context["gates"] = kernels[0][:-size], kernels[0][-size:]
        self._query = self._vector = None
        if layer.output_kernel is not None:
            of_context["vector"] = layer.output_kernel.value[:size]
            self._vector = times(layer.output_kernel.value[size:], dtype="float32")
            self.taken.append(layer.output_kernel)
        if type(layer.attention) is AdditiveAttention:
            self._query = times(layer.attention.query_kernel.value)
            self.taken.append(layer.attention.query_kernel)
        self._times = [
            _products(cell, kernel, times)
            for cell, kernel in zip(_cells(layer), kernels, strict=True)
        ]
        self._sizes = {name: kernel.shape[1] for name, kernel in of_context.items()}
        if of_context:
            kernel = ops.concatenate(list(of_context.values()), axis=-1)
            self._of_context = times(kernel)
        if self._vector is None:
            self._sizes["context"] = size

    def prepare(self, memory: Memory) -> Memory:
        """Return the memory with the products of its value in the value's place.

        Args:
            memory: from the layer's `prepare`.
        """
        batch, length, size = ops.shape(memory.value)
        value = ops.reshape(memory.value, (-1, size))
        parts = [value] if "context" in self._sizes else []
        if len(self._sizes) > len(parts):
            parts.insert(0, self._of_context(value))
        value = ops.concatenate(parts, axis=-1)
        value = ops.reshape(value, (batch, length, sum(self._sizes.values())))
        return memory._replace(value=ops.cast(value, memory.value.dtype))

    def __call__(
        self, inputs: Tensor, memory: Memory, state: State
    ) -> tuple[Tensor, Tensor, State]:
        """Take one step: see `AttentionCell.step`.

        Args:
            inputs: `(B·n, dim)`.
            memory: from `prepare`.
            state: from the layer's `initial_state` or the last step.
        """
        layer = self._layer
        fed = [inputs, state.output] if layer.input_feeding else [inputs]
        if layer.order == "bahdanau":
            query = layer._query(state.cell)
            of_context, weights, attention = self._look(query, memory, state.attention)
            output, cell = self._advance(fed, state.cell, of_context["gates"])
        else:
            output, cell = self._advance(fed, state.cell)
            of_context, weights, attention = self._look(output, memory, state.attention)
        if self._vector is None:
            output = ops.concatenate([of_context["context"], output], axis=-1)
        else:
            output = ops.tanh(of_context["vector"] + self._vector(output))
        output = ops.cast(output, layer.compute_dtype)
        return output, weights, State(cell, attention, output if layer.input_feeding else ())

    def _look(
        self, query: Tensor, memory: Memory, state: Any
    ) -> tuple[dict[str, Tensor], Tensor, Any]:
        attention = self._layer.attention
        if self._query is None:
            found, weights, state = attention.look(query, memory, state, {})
        else:
            batch, length = ops.shape(memory.value)[:2]
            query = ops.cast(self._query(query), attention.compute_dtype)
            query = ops.reshape(query, (batch, -1, query.shape[-1]))  # beams share a memory row
            found, weights, state = attention.attend(query, memory, state, None, {})
            found = ops.reshape(found, (-1, found.shape[-1]))
            weights = ops.reshape(weights, (-1, length))
        *ends, _ = itertools.accumulate(self._sizes.values())
        parts = ops.split(found, ends, axis=-1) if ends else [found]
        return dict(zip(self._sizes, parts, strict=True)), weights, state

    def _advance(
        self, inputs: list[Tensor], state: Any, of_context: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """Call the cell, or one after the other those of a stack."""
        stacked = isinstance(self._layer.cell, keras.layers.StackedRNNCells)
        states, new = state if stacked else [state], []
        for cell, times, old in zip(_cells(self._layer), self._times, states, strict=True):
            old = list(old) if isinstance(old, (list, tuple)) else [old]
            gru = isinstance(cell, keras.layers.GRUCell)
            gates = times[0](ops.concatenate(inputs if gru else [*inputs, old[0]], axis=-1))
            if of_context is not None:  # the first cell's
                gates, of_context = gates + of_context, None
            if gru:
                now = hoisted.gru_step(cell, gates, times[1](old[0]), old)[0]
            else:
                lstm = isinstance(cell, keras.layers.LSTMCell)
                now = hoisted.lstm_step(cell, gates, old) if lstm else [cell.activation(gates)]
            now = [ops.cast(x, y.dtype) for x, y in zip(now, old, strict=True)]
            inputs = [now[0]]
            new.append(now)
        packed = keras.tree.pack_sequence_as(state, keras.tree.flatten(new))
        return inputs[0], packed


def _cells(layer: AttentionCell) -> list[Any]:
    return getattr(layer.cell, "cells", [layer.cell])


def _products(
    cell: Any, kernel: Tensor, times: Callable[..., Callable[[Tensor], Tensor]]
) -> list[Callable[[Tensor], Tensor]]:
    """Return the products of a cell: one of input and state together where it allows that."""
    if isinstance(cell, keras.layers.GRUCell):
        bias, recurrent_bias = ops.unstack(cell.bias.value)
        return [
            times(kernel, bias),
            times(cell.recurrent_kernel.value, recurrent_bias),
        ]
    kernel = ops.concatenate([kernel, cell.recurrent_kernel.value], axis=0)
    return [times(kernel, cell.bias.value)]
