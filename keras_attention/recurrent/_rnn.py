"""The layer that runs an attention cell over a sequence."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops, tree

from keras_attention import backend
from keras_attention._attention import Attention, Memory
from keras_attention.fast import _loop as loop
from keras_attention.layer import expect_known_length
from keras_attention.recurrent import keras_cells
from keras_attention.recurrent.cell import AttentionCell, State
from keras_attention.shapes import Tensor, blank_where_masked, keep_where


@keras.saving.register_keras_serializable("keras_attention")
class AttentionRNN(AttentionCell):
    """Runs a recurrent cell over a sequence while it attends to a memory.

    Each step is a step of `AttentionCell`, with the same arguments.

    On a GPU with TensorFlow, compile the model with `jit_compile=True`. If the model contains
    Keras's `LSTM` or `GRU`, give these layers `use_cudnn=False`: Keras does not compile them with
    cuDNN.

    Args:
        cell, attention, order, units, input_feeding, gate: see `AttentionCell`.
        return_sequences: whether to return all outputs, or only the last output that is not masked.
        return_state: whether to return the last `State` as well.
        return_attention_scores: whether to return the attention weights as well; a call may
            override this value.
        **kwargs: further arguments of `AttentionCell`, such as `activation`.

    Call arguments:
        inputs: `(B, T, dim)`.
        memory: `(B, S, dim)`, or a grid `(B, H, W, dim)`.
        inputs_mask: boolean `(B, T)`; False steps keep the state, and have output 0.
        memory_mask: boolean `(B, S)`, or `(B, H, W)` for a grid; False positions get weight 0.
            Steps and positions that a mask hides may be NaN or infinite.
        initial_state: a `State` that another call returned, or a list of only the recurrent cell's
            states, each `(B, ·)`; zeros if not given.
        training: whether dropout is applied.
        return_attention_scores: whether to return the attention weights; None for the
            constructor's value.

    Output:
        The outputs `(B, T, output_size)`, or `(B, output_size)` without `return_sequences`. With
        `return_state`, the last `State` follows: to continue the sequence, pass the `State` to the
        next call as `initial_state`. With `return_attention_scores`, the weights are last:
        `(B, T, S)`, with several heads `(B, heads, T, S)`.

    Example:
        ```python
        target, memory = keras.random.normal((2, 3, 5)), keras.random.normal((2, 7, 6))
        decoder = AttentionRNN(keras.layers.GRUCell(8), AdditiveAttention(8), units=4)
        outputs = decoder(target, memory)  # (2, 3, 4)
        ```
    """

    _inputs_form = "(B, T, dim)"

    def __init__(
        self,
        cell: keras.layers.Layer,
        attention: Attention,
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
        memory: Tensor,
        inputs_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        initial_state: Any = None,
        training: bool | None = None,
        return_attention_scores: bool | None = None,
    ) -> Any:
        """Run over the sequence; the class documents the arguments and the output."""
        expect_known_length(self, inputs)
        prepared = self._prepared(inputs.shape, memory, memory_mask)
        state = self.initial_state(prepared, initial_state)
        rows, mask = ops.cast(inputs, self.compute_dtype), None
        if inputs_mask is not None:
            inputs_mask = self._checked_mask("inputs_mask", inputs_mask, inputs.shape[:2])
            mask = ops.transpose(inputs_mask)  # (T, B)
            rows = blank_where_masked(inputs_mask, rows)  # NaN would make gradients NaN
        arguments = ops.transpose(rows, (1, 0, 2)), mask, prepared, state, training
        cells = [keras_cells.hoisted(cell) for cell in keras_cells.parts(self.cell)]
        gates = None if None in cells else cells
        if self.order == "luong" and not self.input_feeding:
            outputs, weights, state = self._attend_after_cell(gates, *arguments)
        elif gates and (training or not backend.under_xla()):
            # Under XLA, the hoisted loop's gradients are faster, but a forward pass without
            # gradients takes up to 1.35 times as long.
            outputs, weights, state = self._run_hoisted(gates, *arguments)
        else:
            outputs, weights, state = self._run_stepwise(*arguments)
        if not self.return_sequences:
            outputs, rows = (_last_valid(x, inputs_mask) for x in (outputs, rows))
            inputs_mask = None if inputs_mask is None else ops.any(inputs_mask, axis=1)
        if not self.input_feeding:  # the loop returned [c_t; s_t]; one product for all steps
            outputs = self._read_out(outputs, rows)
            if inputs_mask is not None:
                outputs = blank_where_masked(inputs_mask, outputs)
        return self._returned(outputs, weights, state, return_attention_scores)

    # Three ways to run, with the same result: the outputs `(B, T, output_size)` with input feeding,
    # or `[c_t; s_t]` `(B, T, ·)` without; the weights `(B, [heads,] T, S)`; and the last state.

    def _run_stepwise(
        self, inputs: Tensor, mask: Tensor | None, memory: Memory, state: State, training: Any
    ) -> tuple[Tensor, Tensor, State]:
        """Run `AttentionCell`'s step in a loop, with inputs `(T, B, dim)` and mask `(T, B)`."""
        steps = {"inputs": inputs} if mask is None else {"inputs": inputs, "mask": mask}
        if training:
            steps["noise"] = self._draw_noise(inputs, memory)
        cell = self._cell_for_call(ops.shape(inputs)[1], training)
        read_out = self._read_out if self.input_feeding else lambda pair, inputs: pair

        def advance(step: dict[str, Any], state: State) -> tuple[list[Tensor], State]:
            output, weights, new = self._advance(
                cell, step["inputs"], memory, state, step.get("noise"), training, read_out
            )
            if "mask" in step:
                new = keep_where(step["mask"], new, state)
                output = blank_where_masked(step["mask"], output)
                weights = blank_where_masked(step["mask"], weights)
            return [output, weights], new

        dtypes = [self.compute_dtype] * 2
        (outputs, weights), state = backend.scan(advance, state, steps, dtypes)
        # outputs (T, B, ·) to (B, T, ·), weights (T, B, [heads,] S) to (B, [heads,] T, S)
        return ops.swapaxes(outputs, 0, 1), ops.moveaxis(weights, 0, -2), state

    def _draw_noise(self, inputs: Tensor, memory: Memory) -> Any:
        """Return the noise of all steps, `(T, B, [heads,] 1, S)` each."""
        shape = (ops.shape(inputs)[0], *self.attention.weights_shape(memory, 1))
        return self.attention.draw_noise(shape)

    def _attend_after_cell(
        self, gates: Any, inputs: Tensor, mask: Any, memory: Memory, state: State, training: Any
    ) -> tuple[Tensor, Tensor, State]:
        """Run the cell over all steps, then attend with all outputs at once.

        Only for the order `"luong"` without input feeding: there the cell does not read contexts.
        """
        if gates and len(gates) == 1:
            outputs, flat = loop.run_cell(gates[0], inputs, tree.flatten(state.cell), mask)
            cell_state = tree.pack_sequence_as(state.cell, flat)
        else:
            outputs, cell_state = self._run_cell(inputs, mask, state.cell, training)
        mask = None if mask is None else ops.transpose(mask)
        outputs = blank_where_masked(mask, ops.swapaxes(outputs, 0, 1))  # (B, T, dim of s)
        context, weights, attention = self.attention.attend_all(
            outputs, memory, state.attention, mask, training
        )
        pair = ops.concatenate([self._gated(outputs, context), outputs], axis=-1)
        return pair, ops.cast(weights, self.compute_dtype), State(cell_state, attention, ())

    def _run_cell(
        self, inputs: Tensor, mask: Tensor | None, state: Any, training: Any
    ) -> tuple[Tensor, Any]:
        """Run the cell without attention; return outputs `(T, B, ·)` and the cell's last state."""
        steps = {"inputs": inputs} if mask is None else {"inputs": inputs, "mask": mask}
        cell = self._cell_for_call(ops.shape(inputs)[1], training)

        def advance(step: dict[str, Any], state: Any) -> tuple[Tensor, Any]:
            output, new = keras_cells.advance(cell, step["inputs"], state, training)
            output = ops.cast(output, self.compute_dtype)
            return output, keep_where(step["mask"], new, state) if "mask" in step else new

        return backend.scan(advance, state, steps, self.compute_dtype)

    def _run_hoisted(
        self, gates: Any, inputs: Tensor, mask: Any, memory: Memory, state: State, training: Any
    ) -> tuple[Tensor, Tensor, State]:
        """Run step by step; products that need no state are computed before the loop."""
        dtype, readout = self.compute_dtype, self._hoisted_readout(inputs)
        kernel = None if self.gate else self.attention.linear_query()
        kernel = None if kernel is None else ops.cast(kernel, dtype)
        direct = self.order == "luong" and self.attention.num_heads == 1 and not self.gate
        if readout and direct and backend.for_gpu() and self.attention.averages():
            # Only the readout reads the context, which is an average of the values. So multiply the
            # values by the context's rows of the kernel once, before the loop.
            context_kernel, output_kernel = ops.split(
                readout.kernel, [memory.value.shape[-1]], axis=0
            )
            memory = memory._replace(value=ops.matmul(memory.value, context_kernel))
            readout = readout._replace(kernel=output_kernel, needs_context=False)

        def attend(query: Tensor, state: Any, noise: Any) -> tuple[Tensor, Tensor, Any]:
            if kernel is None:
                return self._attend(query, memory, state, noise)
            query = ops.expand_dims(query, 1)
            context, weights, state = self.attention.attend(query, memory, state, None, noise)
            return ops.squeeze(context, 1), ops.cast(ops.squeeze(weights, 1), dtype), state

        outputs, weights, last = loop.run_attending(
            gates,
            inputs,
            mask,
            state._replace(cell=tree.flatten(state.cell)),
            attend=attend,
            query_kernel=kernel,
            noise=self._draw_noise(inputs, memory) if training else None,
            order=self.order,
            feeding=self.input_feeding,
            readout=readout,
        )
        last = last._replace(cell=tree.pack_sequence_as(state.cell, last.cell))
        return ops.swapaxes(outputs, 0, 1), ops.moveaxis(weights, 0, -2), last

    def _hoisted_readout(self, inputs: Tensor) -> loop.Readout | None:
        """Return the readout for input feeding, or None if no readout is in the loop.

        The inputs' term of the maxout readout is computed here, for all steps at once.
        """
        if not self.input_feeding or self.output_kernel is None:
            return None
        kernel = ops.cast(self.output_kernel, self.compute_dtype)
        if self.readout == "maxout":
            # Rows for [c_t; s_t], then rows for the inputs.
            kernel, of_inputs = ops.split(kernel, [kernel.shape[0] - inputs.shape[-1]], axis=0)
            added = ops.matmul(inputs, of_inputs)  # (T, B, 2 · units)
        else:
            added = ops.zeros((*ops.shape(inputs)[:2], kernel.shape[-1]), self.compute_dtype)
        return loop.Readout(kernel, added, self.activate)

    # Keras.

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        """Return the inputs' mask if the layer returns a sequence, otherwise None."""
        return previous_mask if self.return_sequences else None

    def _returned(self, outputs: Any, weights: Any, state: Any, with_weights: bool | None) -> Any:
        """Return the outputs, followed by the state and the weights if they are requested."""
        with_weights = self.return_attention_scores if with_weights is None else with_weights
        more = [*([state] if self.return_state else []), *([weights] if with_weights else [])]
        return (outputs, *more) if more else outputs

    def output_spec(
        self, inputs: Any, memory: Any, return_attention_scores: bool | None = None, **kwargs: Any
    ) -> Any:
        """Return the symbolic outputs."""
        self._check_shapes(inputs.shape, memory.shape)
        steps = inputs.shape[1:2]
        output, weights, state = self._step_spec(inputs.shape[0], memory.shape, steps)
        if not self.return_sequences:
            output = keras.KerasTensor((output.shape[0], output.shape[-1]), output.dtype)
        return self._returned(output, weights, state, return_attention_scores)


def _last_valid(outputs: Tensor, mask: Tensor | None) -> Tensor:
    """Return the last row of `(B, T, dim)` where the mask `(B, T)` is True; zeros if none is.

    Rows where the mask is False must be zeros.
    """
    if mask is None:
        return outputs[:, -1]
    backwards = ops.flip(ops.cast(mask, "int32"), axis=1)
    index = ops.shape(outputs)[1] - 1 - ops.cast(ops.argmax(backwards, axis=1), "int32")
    picked = ops.take_along_axis(outputs, ops.reshape(index, (-1, 1, 1)), axis=1)
    return ops.squeeze(picked, 1)  # without any True, the row is a masked row: zeros
