"""A step of an attention cell with constant kernels, for exported searches.

A context is an average of the memory, and the product of an average equals the average of the
products. So the context's kernel is multiplied by the whole memory once, before the first step, and
a step averages the products. With several heads, each head has weights of its own, so the step
multiplies the context instead. The embeddings' kernel is multiplied by the whole vocabulary when
the step is built, and a step reads a row of the result.

TensorFlow only: see `training.decode.constant._products`.
"""

from __future__ import annotations

import copy
import functools
import itertools
from typing import Any, cast

import keras
from keras import ops

from keras_attention import Memory
from keras_attention.fast.gates import Gates, gru_step, lstm_step
from keras_attention.layer import keeps
from keras_attention.recurrent import keras_cells
from keras_attention.recurrent.cell import AttentionCell, State
from keras_attention.shapes import Tensor, flat_mask, flat_memory
from training.decode.constant._products import lookup, product


def has_constant_step(layer: AttentionCell) -> bool:
    """Whether `ConstantStep` can replace the `step` of an `AttentionCell`."""
    plain = layer.attention.averages() and keeps(layer.step, AttentionCell.step)
    return plain and keras_cells.hoisted(layer.cell) is not None


class ConstantStep:
    """A step of a built `AttentionCell` or `AttentionRNN` with its current weights as constants.

    Scores, distributions, averages, states and the state's part of the attentional vector are in
    float32, whatever the dtype of the other products.

    Args:
        layer: a layer for which `has_constant_step` is true.
        embeddings: the tokens' embeddings, `(V, dim)`.
        beams: number of adjacent rows that share a row of the memory.
        dtype: dtype of the products, "bfloat16" or "float32".
        recurrent_dtype: dtype of the products that compute cells and keys.

    Attributes:
        taken: the weights that are constants now; the step no longer reads their variables.
    """

    def __init__(
        self,
        layer: AttentionCell,
        embeddings: keras.Variable,
        beams: int = 1,
        dtype: str = "bfloat16",
        recurrent_dtype: str = "bfloat16",
    ) -> None:
        self._layer, self._beams, size = layer, beams, layer.context_size
        single = beams == 1  # without beams, a sentence is one row, and a batch many rows
        times = functools.partial(product, dtype=dtype, single=single)
        recurrent_times = functools.partial(times, dtype=recurrent_dtype)
        cell = self._cell = cast("Gates", keras_cells.gates(layer.cell))
        bias, recurrent = cell.bias.value, cell.recurrent_kernel.value
        of_token, kernel = ops.split(cell.kernel.value, [embeddings.shape[1]])
        of_context = {}  # kernels that multiply contexts, `(size, ·)`
        if layer.order == "bahdanau":
            kernel, of_context["gates"] = kernel[:-size], kernel[-size:]
        if cell.kind == "gru":  # its reset gate keeps the products of input and state apart
            self._of_state = recurrent_times(recurrent, bias[1])
            bias = bias[0]
        else:
            kernel = ops.concatenate([kernel, recurrent], axis=0)
        self._of_rows = recurrent_times(kernel) if kernel.shape[0] else None
        self._gates_size = of_token.shape[1]
        if layer.readout == "maxout":  # it reads the token, too
            output_kernel = layer.output_kernel
            assert output_kernel is not None  # a maxout has units
            of_input = output_kernel.value[size + layer.cell_output_size :]
            of_token = ops.concatenate([of_token, of_input], axis=-1)
            bias = ops.concatenate([bias, ops.zeros(of_input.shape[1])])
        self._of_tokens, has_table = lookup(embeddings, of_token, bias, recurrent_dtype, single)
        self.taken = [*layer.cell.weights, *([embeddings] if has_table else [])]
        self._vector = self._gate = None
        if layer.gate:
            kernel, gate_bias = layer.gate_kernel, layer.gate_bias
            self._gate = times(kernel.value, gate_bias.value, dtype="float32")
            self.taken += [kernel, gate_bias]
        if layer.output_kernel is not None:
            of_context["vector"] = layer.output_kernel.value[:size]
            rows = slice(size, size + layer.cell_output_size)
            self._vector = times(layer.output_kernel.value[rows], dtype="float32")
            self.taken.append(layer.output_kernel)
        self._query = self._key = None
        query, key = _answer(layer, "linear_query"), _answer(layer, "linear_key")
        if query is not None and key is not None:
            self._query = times(query.value)
            bias = None if key[1] is None else key[1].value
            self._key = recurrent_times(key[0].value, bias, single=True)
            self.taken += [query, *(x for x in key if x is not None)]
        self._sizes = {name: kernel.shape[1] for name, kernel in of_context.items()}
        if of_context:
            kernel = ops.concatenate(list(of_context.values()), axis=-1)
            # A source may have one token. With several heads, contexts are multiplied in the step.
            self._of_context = times(kernel, single=single or layer.attention.num_heads == 1)
        if self._vector is None:
            self._sizes["context"] = size

    def with_beams(self, beams: int) -> ConstantStep:
        """Return this step, with the same constants, for `beams` rows to a row of the memory."""
        step = copy.copy(self)
        step._beams = beams
        return step

    def prepare(self, value: Tensor, mask: Tensor | None = None) -> Memory:
        """Prepare a memory as the layer does, but with products of the value instead of the value.

        Args:
            value: the encoder's outputs, `(B, S, size)` or a grid.
            mask: True where there is something to attend to, without the last axis of `value`.
        """
        if self._key is None:
            memory = self._layer.prepare(value, mask=mask)
            if self._layer.attention.num_heads > 1:
                return memory
        else:  # the layer would read a key kernel that is in `taken`
            value = flat_memory(ops.cast(value, self._layer.compute_dtype))
            mask = None if mask is None else ops.cast(flat_mask(mask), "bool")
            memory = Memory(value, None, mask)
        batch, length, size = ops.shape(memory.value)
        rows = ops.reshape(memory.value, (-1, size))  # (B·S, size)

        def sequences(parts: list[Tensor]) -> Tensor:  # of (B·S, ·) to (B, S, ·)
            joined = ops.cast(ops.concatenate(parts, axis=-1), memory.value.dtype)
            return ops.reshape(joined, (batch, length, joined.shape[-1]))

        parts = [rows] if "context" in self._sizes else []
        if len(self._sizes) > len(parts):
            parts.insert(0, self._of_context(rows))
        key = memory.key if self._key is None else sequences([self._key(rows)])
        return Memory(sequences(parts), key, memory.mask)

    def __call__(
        self, tokens: Tensor, memory: Memory, state: State
    ) -> tuple[Tensor, Tensor, State]:
        """Take one step from tokens, int32 `(B·beams,)`: see `AttentionCell.step`.

        Returns:
            The output `(B·beams, ·)`, the attention weights `(B·beams, S)`, with several heads
            `(B·beams, heads, S)`, and the next state.
        """
        layer = self._layer
        gates = self._of_tokens(tokens)
        gates, of_input = gates[:, : self._gates_size], gates[:, self._gates_size :]
        fed = [state.output] if layer.input_feeding else []
        if layer.order == "bahdanau":
            query = keras_cells.first_state(layer.cell, state.cell)
            context, weights, attention = self._attend(query, memory, state.attention)
            output, cell = self._advance(fed, state.cell, gates + context["gates"])
        else:
            output, cell = self._advance(fed, state.cell, gates)
            context, weights, attention = self._attend(output, memory, state.attention)
        if self._vector is None:
            output = ops.concatenate([context["context"], output], axis=-1)
        else:
            vector = context["vector"] + self._vector(output)
            output = layer.activate(vector + of_input if layer.readout == "maxout" else vector)
        output = ops.cast(output, layer.compute_dtype)
        return output, weights, State(cell, attention, output if layer.input_feeding else ())

    def _attend(
        self, query: Tensor, memory: Memory, state: Any
    ) -> tuple[dict[str, Tensor], Tensor, Any]:
        attention = self._layer.attention
        if self._query is None:
            context, weights, state = attention.step(query, memory, state)
        else:
            projected = ops.cast(self._query(query), attention.compute_dtype)
            projected = ops.reshape(projected, (-1, self._beams, projected.shape[-1]))
            context, weights, state = attention.attend(projected, memory, state, None, None)
            context = ops.reshape(context, (-1, context.shape[-1]))  # (B·beams, ·)
            weights = ops.reshape(weights, (-1, ops.shape(weights)[-1]))
        if self._gate is not None:
            gate = ops.sigmoid(self._gate(ops.cast(query, "float32")))
            context = ops.cast(gate, context.dtype) * context
        if attention.num_heads > 1 and set(self._sizes) != {"context"}:
            products = ops.cast(self._of_context(context), context.dtype)
            context = ops.concatenate([products, context], -1) if self._vector is None else products
        *ends, _ = itertools.accumulate(self._sizes.values())
        parts = ops.split(context, ends, axis=-1) if ends else [context]
        return dict(zip(self._sizes, parts, strict=True)), weights, state

    def _advance(self, rows: list[Tensor], state: Any, gates: Tensor) -> tuple[Tensor, Any]:
        """Call the cell; return its output and next state.

        Args:
            rows: the cell's inputs that are not in `gates` yet, each `(rows, ·)`.
            state: the cell's state.
            gates: the products of token and context with the cell's kernel, `(rows, ·)`.
        """
        cell, old = self._cell, keras.tree.flatten(state)
        if cell.kind != "gru":
            rows = [*rows, old[0]]
        if self._of_rows is not None:
            gates = gates + self._of_rows(ops.concatenate(rows, axis=-1))
        if cell.kind == "gru":
            new = gru_step(cell, gates, ops.split(self._of_state(old[0]), 3, axis=-1), old)
        else:
            new = lstm_step(cell, gates, old) if cell.kind == "lstm" else [cell.activation(gates)]
        new = [ops.cast(x, y.dtype) for x, y in zip(new, old, strict=True)]
        return new[0], keras.tree.pack_sequence_as(state, new)


def _answer(layer: AttentionCell, question: str) -> Any:
    """Return the result of a method of the attention layer; None if there is no such method."""
    return getattr(layer.attention, question, lambda: None)()
