"""The layer that runs an attention cell over a sequence."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops, tree

from keras_attention import backend, losses, masks
from keras_attention.attention import Attention, Memory, Tensor
from keras_attention.fast import loop, switch
from keras_attention.recurrent import keras_cells
from keras_attention.recurrent.cell import AttentionCell
from keras_attention.shapes import checked_mask, expect_known_length, flat_length, keep_where
from keras_attention.step import State

Memories = tuple[Memory, ...]


@keras.saving.register_keras_serializable("keras_attention")
class AttentionRNN(AttentionCell):
    """Runs a recurrent cell over a sequence while it attends to a memory.

    Each step, and the arguments for it, are those of `AttentionCell`.

    Args:
        cell: a Keras recurrent cell (`SimpleRNNCell`, `GRUCell`, `LSTMCell`, `StackedRNNCells`).
        attention: an attention layer of this library; for several memories a list of them.
        order: `"bahdanau"` or `"luong"`.
        units: width of the attentional vector, or None to return `[c_t; s_t]`.
        input_feeding: whether the last output is fed to the cell.
        gate: whether the contexts are gated.
        return_sequences: whether to return all outputs, or the last valid one alone.
        return_state: whether to return the cell's last states as well.
        return_attention_scores: whether to return the attention weights as well, where the call
            does not say.
        **kwargs: further arguments of `AttentionCell`, such as `activation`; `name`, `dtype`.

    Call arguments:
        inputs: `(B, T, dim)`.
        memory: `(B, S, dim)`, or a grid `(B, H, W, dim)`; for several memories a list of them.
        inputs_mask: boolean `(B, T)`; at False steps the state stays and the output is 0.
        memory_mask: boolean `(B, S)`; False positions get weight 0. For several memories a list.
        memory_key: `(B, S, dk)`, the keys, such as the memory with its positions; the memory itself
            if not given. For several memories a list.
        initial_state: list of the cell's states, each `(B, ·)`; zeros if not given.
        training: whether dropout is applied.
        return_attention_scores: whether to return the attention weights; None for the
            constructor's value.

    Output:
        `(B, T, output_size)`, or `(B, output_size)` without `return_sequences`. With
        `return_state` the cell's states follow. With `return_attention_scores` the weights of each
        memory come last: `(B, T, S)`, with several heads `(B, heads, T, S)`.

    Example:
        ```python
        target, memory = keras.random.normal((2, 3, 5)), keras.random.normal((2, 7, 6))
        decoder = AttentionRNN(keras.layers.GRUCell(8), AdditiveAttention(8), units=4)
        outputs = decoder(target, memory)  # (2, 3, 4)
        ```
    """

    _inputs_rank, _inputs_form = 3, "inputs (B, T, dim)"

    def __init__(
        self,
        cell: keras.layers.Layer,
        attention: Attention | list[Attention],
        order: str = "bahdanau",
        units: int | None = None,
        input_feeding: bool = False,
        gate: bool = False,
        return_sequences: bool = True,
        return_state: bool = False,
        return_attention_scores: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(cell, attention, order, units, input_feeding, gate, **kwargs)
        self.return_sequences = return_sequences
        self.return_state = return_state
        self.return_attention_scores = return_attention_scores
        self.supports_masking = True

    def call(  # type: ignore[override]  # a sequence and its mask, where the cell takes a step
        self,
        inputs: Tensor,
        memory: Any,
        inputs_mask: Tensor | None = None,
        memory_mask: Any = None,
        initial_state: Any = None,
        training: bool | None = None,
        memory_key: Any = None,
        return_attention_scores: bool | None = None,
    ) -> Any:
        """Run over the sequence; arguments and result as the class says."""
        expect_known_length(self, inputs)
        memories = self._checked_memories(inputs.shape, memory, memory_mask, memory_key)
        inputs_mask = checked_mask(self, "inputs_mask", inputs_mask, inputs.shape[:2])
        state = self.initial_state(memories, initial_state)
        given = ops.cast(inputs, self.compute_dtype)
        inputs = ops.transpose(given, (1, 0, 2))  # (T, B, dim)
        mask = None if inputs_mask is None else ops.transpose(inputs_mask)
        if self.order == "luong" and not self.input_feeding:
            run = self._call_cell_first
        elif switch.hoists_attention(training) and self._hoists():
            run = self._call_hoisted
        else:
            run = self._call_stepwise
        outputs, weights, cell_state = run(inputs, mask, memories, state, training)
        if inputs_mask is not None:
            given = ops.where(ops.expand_dims(inputs_mask, -1), given, ops.zeros_like(given))
        if not self.return_sequences:
            outputs, given = (
                _last(x) if inputs_mask is None else _last_valid(x, inputs_mask)
                for x in (outputs, given)
            )
        if not self.input_feeding:  # one product for all steps, after the loop
            outputs = self._read_out(outputs, given)
        result = [outputs]
        if self.return_state:
            result.extend(ops.cast(x, self.compute_dtype) for x in tree.flatten(cell_state))
        if self._returns_weights(return_attention_scores):
            for one, read in zip(weights, memories, strict=True):
                masks.carry(one, inputs_mask, read.mask)
            if training:
                losses.await_losses(self)
            result.extend(weights)
        return result[0] if len(result) == 1 else tuple(result)

    # Three ways to run, with one result: the outputs `(B, T, ·)`, which are `[c_t; s_t]` without
    # input feeding; the weights `(B, T, S)` of each memory; and the last state of the cell.

    def _call_stepwise(
        self, inputs: Tensor, mask: Tensor | None, memories: Memories, state: State, training: Any
    ) -> tuple[Tensor, list[Tensor], Any]:
        """Run step by step."""
        steps = {"inputs": inputs}
        if mask is not None:
            steps["mask"] = mask
        if training:
            steps["noise"] = self._noise(memories, ops.shape(inputs)[:1], 1)

        def advance(now: dict[str, Any], state: State) -> tuple[list[Tensor], State]:
            noise = now.get("noise")
            reads_out = self.input_feeding
            taken = self._take_step(now["inputs"], memories, state, noise, training, reads_out)
            new, outputs = taken.state, [taken.output, *taken.weights]
            if "mask" in now:
                new = keep_where(now["mask"], new, state)
                outputs = keep_where(now["mask"], outputs, [ops.zeros_like(x) for x in outputs])
            return outputs, new

        dtypes = [self.compute_dtype] * (1 + len(memories))
        with self._dropout_masks(ops.shape(inputs)[1], training):
            (outputs, *weights), state = backend.scan(advance, state, steps, dtypes)
        return ops.swapaxes(outputs, 0, 1), [ops.moveaxis(w, 0, -2) for w in weights], state.cell

    def _call_cell_first(
        self, inputs: Tensor, mask: Tensor | None, memories: Memories, state: State, training: Any
    ) -> tuple[Tensor, list[Tensor], Any]:
        """Run the cell over all steps, then attend with all its outputs at once."""
        if gates := self._gates():
            outputs, cell_state = loop.run_cell(gates, inputs, tree.flatten(state.cell), mask)
        else:
            outputs, cell_state = self._run_cell(inputs, mask, state.cell, training)
        outputs = ops.swapaxes(outputs, 0, 1)
        mask = None if mask is None else ops.transpose(mask)
        if mask is not None:
            outputs = ops.where(ops.expand_dims(mask, -1), outputs, ops.zeros_like(outputs))
        pairs = zip(self.attentions, memories, strict=True)
        found = [attention.attend_all(outputs, m, mask, training) for attention, m in pairs]
        contexts, weights = zip(*found, strict=True)
        cast = [ops.cast(w, self.compute_dtype) for w in weights]
        pair = ops.concatenate([self._join(outputs, contexts), outputs], axis=-1)
        return pair, cast, cell_state

    def _run_cell(
        self, inputs: Tensor, mask: Tensor | None, state: Any, training: Any
    ) -> tuple[Tensor, Any]:
        """Run the cell alone: outputs `(T, B, ·)` and its last state."""
        steps = {"inputs": inputs} if mask is None else {"inputs": inputs, "mask": mask}

        def advance(now: dict[str, Any], state: Any) -> tuple[Tensor, Any]:
            output, new = self._call_cell([now["inputs"]], state, training)
            return output, keep_where(now["mask"], new, state) if "mask" in now else new

        with self._dropout_masks(ops.shape(inputs)[1], training):
            return backend.scan(advance, state, steps, self.compute_dtype)

    def _call_hoisted(
        self, inputs: Tensor, mask: Tensor | None, memories: Memories, state: State, training: Any
    ) -> tuple[Tensor, list[Tensor], Any]:
        """Run step by step, with all products that the loop does not need taken out of it."""
        outputs, weights, cell_state = loop.run_attending(
            self._gates(),
            inputs,
            mask,
            state._replace(cell=tree.flatten(state.cell)),
            attend=lambda query, states, noise: self._attend(query, memories, states, noise),
            noise=self._noise(memories, ops.shape(inputs)[:1], 1) if training else None,
            order=self.order,
            feeding=self.input_feeding,
            readout=self._hoisted_readout(inputs),
            count=len(memories),
        )
        return ops.swapaxes(outputs, 0, 1), [ops.moveaxis(w, 0, -2) for w in weights], cell_state

    def _gates(self) -> Any:
        """Return the tensors of the cell for the loops of `fast.loop`, or None."""
        return keras_cells.hoisted(self.cell, self.compute_dtype)

    def _hoists(self) -> bool:
        """Whether the hoisted loop knows the cell, and all is of one type."""
        types = {attention.compute_dtype for attention in self.attentions}
        return types == {self.compute_dtype} and bool(self._gates())

    def _hoisted_readout(self, inputs: Tensor) -> loop.Readout | None:
        """Return the readout of a fed output; a deep one's product of the inputs is taken here."""
        if not self.input_feeding or self.output_kernel is None:
            return None
        kernel = ops.cast(self.output_kernel, self.compute_dtype)
        if self.readout == "deep":
            kernel, of_inputs = ops.split(kernel, [kernel.shape[0] - inputs.shape[-1]], axis=0)
            added = ops.matmul(inputs, of_inputs)
        else:
            added = ops.zeros((*ops.shape(inputs)[:2], kernel.shape[-1]), self.compute_dtype)
        return loop.Readout(kernel, added, self.activate)

    # Keras.

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        """Return the mask of the inputs for the output sequence."""
        return previous_mask if self.return_sequences else None

    def _returns_weights(self, asked: bool | None) -> bool:
        return self.return_attention_scores if asked is None else asked

    def compute_output_shape(
        self,
        inputs_shape: tuple[Any, ...],
        memory_shape: Any,
        memory_key_shape: Any = None,
        return_attention_scores: bool | None = None,
    ) -> Any:
        """Return the shapes of what `call` returns."""
        batch, time = inputs_shape[:2]
        memories = self._each(memory_shape)
        size = self.units or sum(shape[-1] for shape in memories) + self.cell_output_size
        shapes = [(batch, time, size) if self.return_sequences else (batch, size)]
        if self.return_state:
            shapes.extend((batch, size) for size in tree.flatten(self.cell.state_size))
        if self._returns_weights(return_attention_scores):
            for attention, memory in zip(self.attentions, memories, strict=True):
                heads = [attention.num_heads] if attention.num_heads > 1 else []
                shapes.append((batch, *heads, time, flat_length(memory)))
        return shapes[0] if len(shapes) == 1 else tuple(shapes)

    def compute_output_spec(self, inputs: Any, memory: Any, **kwargs: Any) -> Any:
        """Return the symbolic outputs."""
        memories = tuple(m.shape for m in self._each(memory))
        self._check_shapes(inputs.shape, memories)
        asked = kwargs.get("return_attention_scores")
        shapes = self.compute_output_shape(
            inputs.shape, self._one(memories), return_attention_scores=asked
        )
        if not isinstance(shapes[0], tuple):
            return keras.KerasTensor(shapes, self.compute_dtype)
        return tuple(keras.KerasTensor(shape, self.compute_dtype) for shape in shapes)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "return_sequences": self.return_sequences,
            "return_state": self.return_state,
            "return_attention_scores": self.return_attention_scores,
        }


def _last(outputs: Tensor) -> Tensor:
    """Return from `(B, T, dim)` the last row, zeros if there is none."""
    return ops.sum(outputs, axis=1) if outputs.shape[1] == 0 else outputs[:, -1]


def _last_valid(outputs: Tensor, mask: Tensor) -> Tensor:
    """Return from `(B, T, dim)` the last row that the mask `(B, T)` allows, zeros if none."""
    if outputs.shape[1] == 0:
        return _last(outputs)
    backwards = ops.flip(ops.cast(mask, "int32"), axis=1)
    index = ops.shape(outputs)[1] - 1 - ops.cast(ops.argmax(backwards, axis=1), "int32")
    picked = ops.take_along_axis(outputs, ops.reshape(index, (-1, 1, 1)), axis=1)
    return ops.squeeze(picked, 1)  # masked outputs are zero, so a row without any gives zeros
