"""The layer that runs an attention cell over a sequence."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops, tree

from keras_attention import backend, hoisted
from keras_attention.additive import AdditiveAttention
from keras_attention.attention import Attention, Tensor
from keras_attention.cell import AttentionCell, State
from keras_attention.shapes import check_mask, flat_length, keep_where


@keras.saving.register_keras_serializable("keras_attention")
class AttentionRNN(AttentionCell):
    """Runs a recurrent cell over a sequence while it attends to a memory.

    What happens at each step, and the arguments for it, are those of `AttentionCell`.

    Args:
        cell: a Keras recurrent cell (`SimpleRNNCell`, `GRUCell`, `LSTMCell`, `StackedRNNCells`).
        attention: an attention layer of this library; for several memories a list of them.
        order: `"bahdanau"` or `"luong"`.
        units: width of the attentional vector, or None to return `[c_t; s_t]`.
        input_feeding: whether the last output is fed to the cell.
        gate: whether the contexts are gated.
        return_sequences: whether all outputs are returned, or the last valid one alone.
        return_state: whether the last states of the cell are returned as well.
        return_attention_scores: whether the attention weights are returned as well.

    Call arguments:
        inputs: `(B, T, dim)`.
        memory: `(B, S, dim)`, or a grid `(B, H, W, dim)`; for several memories a list of them.
        inputs_mask: boolean `(B, T)`; where it is False the state stays and the output is 0.
        memory_mask: boolean `(B, S)`; what is False gets weight 0. For several a list.
        initial_state: list of the cell's states, each `(B, ·)`; zeros if not given.
        training: whether dropout is applied.

    Output:
        `(B, T, output_size)`, or `(B, output_size)` without `return_sequences`; then with
        `return_state` the cell's states, and last with `return_attention_scores` the weights
        `(B, T, S)`, with several heads `(B, heads, T, S)`, for each memory.
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

    def call(
        self,
        inputs: Tensor,
        memory: Any,
        inputs_mask: Tensor | None = None,
        memory_mask: Any = None,
        initial_state: Any = None,
        training: bool | None = None,
    ) -> Any:
        """Run over the sequence; arguments and result as the class says."""
        self._check_shapes(inputs.shape, [m.shape for m in self._list(memory)])
        check_mask(self, "inputs_mask", inputs_mask, inputs.shape[:2])
        if memory_mask is not None:
            for m, one in zip(self._list(memory), self._list(memory_mask), strict=True):
                check_mask(self, "memory_mask", one, m.shape[:-1])
        prepared = self.prepare(memory, mask=memory_mask)
        state = self.initial_state(prepared, initial_state)
        inputs = ops.transpose(ops.cast(inputs, self.compute_dtype), (1, 0, 2))  # (T, B, dim)
        mask = None if inputs_mask is None else ops.transpose(ops.cast(inputs_mask, "bool"))
        if self.order == "luong" and not self.input_feeding:
            run = self._call_cell_first
        elif mask is None and self._can_hoist():
            run = self._call_hoisted
        else:
            run = self._call_stepwise
        outputs, weights, cell_state = run(inputs, mask, prepared, state, training)
        if not self.return_sequences:
            outputs = outputs[:, -1] if inputs_mask is None else _last_valid(outputs, inputs_mask)
        if not self.input_feeding:  # one product for all steps, after the loop
            outputs = self._attentional_vector(outputs)
        result = [outputs]
        if self.return_state:
            result.extend(ops.cast(x, self.compute_dtype) for x in tree.flatten(cell_state))
        if self.return_attention_scores:
            result.extend(weights)
        return result[0] if len(result) == 1 else tuple(result)

    # Three ways to run, with one result: outputs `(B, T, ·)`, which are `[c_t; s_t]` without input
    # feeding; for each memory the weights `(B, T, S)`; and the cell's last state.

    def _call_stepwise(
        self, inputs: Tensor, mask: Tensor | None, prepared: Any, state: State, training: Any
    ) -> tuple[Tensor, list[Tensor], Any]:
        """Run step by step."""
        steps = {"inputs": inputs}
        if mask is not None:
            steps["mask"] = mask
        if training:
            self._draw_dropout_masks(ops.shape(inputs)[1])
            steps["noise"] = self._noise(prepared, ops.shape(inputs)[:1], 1)

        def advance(now, state):
            output, weights, new = self._advance(
                now["inputs"], prepared, state, now.get("noise"), training
            )
            if self.input_feeding:
                output = self._attentional_vector(output)
                new = new._replace(output=output)
            outputs = [output, *self._list(weights)]
            if "mask" in now:
                new = keep_where(now["mask"], new, state)
                outputs = keep_where(now["mask"], outputs, [ops.zeros_like(x) for x in outputs])
            return outputs, new

        dtypes = [self.compute_dtype] * (1 + len(self._list(self.attention)))
        (outputs, *weights), state = backend.scan(advance, state, steps, dtypes)
        if training:
            self._forget_dropout_masks()
        return ops.swapaxes(outputs, 0, 1), [ops.moveaxis(w, 0, -2) for w in weights], state.cell

    def _call_cell_first(
        self, inputs: Tensor, mask: Tensor | None, prepared: Any, state: State, training: Any
    ) -> tuple[Tensor, list[Tensor], Any]:
        """Run the cell over all steps, then attend with all its outputs at once."""
        if self._cell_can_hoist():
            found, cell_state = hoisted.run(self.cell, inputs, list(state.cell), mask)
            outputs = found["output"]
        else:
            outputs, cell_state = self._run_cell(inputs, mask, state.cell, training)
        outputs = ops.swapaxes(outputs, 0, 1)
        mask = None if mask is None else ops.transpose(mask)
        if mask is not None:
            outputs = ops.where(ops.expand_dims(mask, -1), outputs, ops.zeros_like(outputs))
        looks = [
            attention.attend_all(outputs, memory, mask, training=training)
            for attention, memory in zip(
                self._list(self.attention), self._list(prepared), strict=True
            )
        ]
        contexts, weights = zip(*looks, strict=True)
        weights = [ops.cast(w, self.compute_dtype) for w in weights]
        pair = ops.concatenate([self._join(outputs, contexts), outputs], axis=-1)
        return pair, weights, cell_state

    def _run_cell(
        self, inputs: Tensor, mask: Tensor | None, state: Any, training: Any
    ) -> tuple[Tensor, Any]:
        """Run the cell alone: outputs `(T, B, ·)` and its last state."""
        steps = {"inputs": inputs} if mask is None else {"inputs": inputs, "mask": mask}
        if training:
            self._draw_dropout_masks(ops.shape(inputs)[1])

        def advance(now, state):
            output, new = self._call_cell([now["inputs"]], state, training)
            return output, keep_where(now["mask"], new, state) if "mask" in now else new

        result = backend.scan(advance, state, steps, self.compute_dtype)
        if training:
            self._forget_dropout_masks()
        return result

    def _cell_can_hoist(self) -> bool:
        return hoisted.supports(self.cell) and self.cell.compute_dtype == self.compute_dtype

    def _can_hoist(self) -> bool:
        return (
            self.order == "bahdanau"
            and not (self.input_feeding or self.gate or self.several)
            and not self.attention.sequential
            and type(self.attention).initial_state is Attention.initial_state
            and self.attention.compute_dtype == self.compute_dtype
            and self._cell_can_hoist()
        )

    def _call_hoisted(
        self, inputs: Tensor, mask: None, prepared: Any, state: State, training: Any
    ) -> tuple[Tensor, list[Tensor], Any]:
        """Run step by step with all that can be taken out of the loop: see `hoisted`."""
        # The kernel of the query is the one product of the attention that is left in the loop.
        projected = type(self.attention) is AdditiveAttention and self.attention.num_heads == 1
        query_kernel = self.attention.query_kernel if projected else None
        value = None
        if self._averages(training):
            value = prepared.value
            prepared = prepared._replace(value=ops.stop_gradient(value))
        if projected and self.compute_dtype in ("float16", "bfloat16"):
            # Its scores are computed in float32: the keys are cast once.
            prepared = prepared._replace(key=ops.cast(prepared.key, "float32"))

        def attend(query):
            query = ops.expand_dims(query, 1)
            if not projected:
                query = self.attention.queries(query)
            noise = self.attention.noise(self.attention.weights_shape(prepared, 1), training)
            context, weights, _ = self.attention.attend(query, prepared, (), None, noise)
            return ops.squeeze(context, 1), ops.squeeze(weights, -2)

        found, cell_state = hoisted.run(
            self.cell,
            inputs,
            list(state.cell),
            attend=attend,
            query_kernel=query_kernel,
            value=value,
        )
        pair = ops.concatenate([found["context"], found["output"]], axis=-1)
        weights = ops.moveaxis(found["weights"], 0, -2)
        return ops.swapaxes(pair, 0, 1), [weights], cell_state

    def _averages(self, training: Any) -> bool:
        """Whether the context is the product of the weights that are returned and the value."""
        attention = self.attention
        plain = type(attention).attend is Attention.attend and attention.num_heads == 1
        return plain and not (training and attention.dropout)

    # Keras.

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        """Return the mask of the inputs for the output sequence."""
        return previous_mask if self.return_sequences else None

    def compute_output_shape(self, inputs_shape: tuple, memory_shape: Any) -> Any:
        """Return the shapes of what `call` returns."""
        batch, time = inputs_shape[:2]
        memories = self._list(memory_shape)
        size = self.units or sum(shape[-1] for shape in memories) + self.cell_output_size
        shapes = [(batch, time, size) if self.return_sequences else (batch, size)]
        if self.return_state:
            shapes.extend((batch, size) for size in tree.flatten(self.cell.state_size))
        if self.return_attention_scores:
            for attention, memory in zip(self._list(self.attention), memories, strict=True):
                heads = [attention.num_heads] if attention.num_heads > 1 else []
                shapes.append((batch, *heads, time, flat_length(memory)))
        return shapes[0] if len(shapes) == 1 else tuple(shapes)

    def compute_output_spec(self, inputs: Any, memory: Any, **kwargs: Any) -> Any:
        """Return the symbolic outputs."""
        memories = [m.shape for m in self._list(memory)]
        self._check_shapes(inputs.shape, memories)
        shapes = self.compute_output_shape(inputs.shape, self._one(memories))
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


def _last_valid(outputs: Tensor, mask: Tensor) -> Tensor:
    """Return from `(B, T, dim)` the last row that the mask `(B, T)` allows, zeros if none."""
    backwards = ops.flip(ops.cast(mask, "int32"), axis=1)
    index = ops.shape(outputs)[1] - 1 - ops.cast(ops.argmax(backwards, axis=1), "int32")
    picked = ops.take_along_axis(outputs, ops.reshape(index, (-1, 1, 1)), axis=1)
    return ops.squeeze(picked, 1)  # masked outputs are zero, so a row without any gives zeros
