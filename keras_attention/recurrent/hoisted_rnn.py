"""Recurrent loops on TensorFlow with all that can be taken out of them.

Of a recurrent step, the product of inputs and kernel does not depend on the state: it is one
product for all steps, before the loop. And the gradients of kernels are one product for all steps
each, after the loop: see `fast.deferred`. `fast.gates` has the steps,
`fast.loop` the loop of a cell that attends.
"""

from __future__ import annotations

import contextlib
from typing import Any

import keras
from keras import ops

from keras_attention import backend
from keras_attention.fast import switch
from keras_attention.fast.deferred import Trace
from keras_attention.fast.gates import hoisted_cell
from keras_attention.recurrent.keras_cells import without_dropout
from keras_attention.shapes import expect_known_length

Tensor = Any


def run(
    cell: Any, inputs: Tensor, state: list[Tensor], mask: Tensor | None = None
) -> tuple[Tensor, list[Tensor]]:
    """Run a cell over a sequence, as a loop over `cell(inputs, state)` would.

    Args:
        cell: a built cell for which `switch.hoists` is true.
        inputs: `(T, B, dim)`.
        state: the cell's states, each `(B, units)`.
        mask: boolean `(T, B)`; where it is False the state stays.

    Returns:
        In the compute dtype, the first state after all steps, `(T, B, units)`, and the last states.
    """
    dtype, trace = cell.compute_dtype, Trace()
    hoisted = hoisted_cell(cell, inputs, state[0], trace)
    steps = {"cell": hoisted.steps}
    if mask is not None:
        steps["mask"] = ops.expand_dims(mask, -1)

    def step(now: dict[str, Any], state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        new = hoisted.step(now["cell"], [], state)
        if "mask" in now:
            new = [ops.where(now["mask"], a, b) for a, b in zip(new, state, strict=True)]
        return ops.cast(new[0], dtype), new

    state = [ops.cast(x, hoisted.state_dtype) for x in state]
    outputs, state = backend.scan(step, state, steps, dtype)
    trace.fill({"output": outputs})
    return outputs, [ops.cast(x, dtype) for x in state]


@keras.saving.register_keras_serializable("keras_attention")
class HoistedRNN(keras.layers.RNN):
    """`keras.layers.RNN` that trains faster on TensorFlow: see the module.

    Arguments, call arguments, weights and results are those of `keras.layers.RNN`. Cells and
    backends that the fast loop does not know run as they do there.

    Example:
        ```python
        states = HoistedRNN(keras.layers.LSTMCell(8))(keras.random.normal((2, 3, 5)))  # (2, 8)
        ```
    """

    def call(
        self,
        sequences: Tensor,
        initial_state: Any = None,
        mask: Tensor | None = None,
        training: bool = False,
    ) -> Any:
        """Run the layer; at inference it draws no dropout masks, unlike Keras's."""
        expect_known_length(self, sequences)
        # A draw moves the random generators: scoring would change the training that follows.
        with contextlib.nullcontext() if training else without_dropout(self.cell):
            return super().call(sequences, initial_state, mask, training)

    def inner_loop(
        self, sequences: Tensor, initial_state: Any, mask: Tensor | None, training: bool = False
    ) -> tuple[Tensor, Tensor, Any]:
        """Run the loop of `keras.layers.RNN.call`."""
        dtype, watched = self.cell.compute_dtype, [sequences, initial_state]
        if self.stateful or self.unroll or not switch.hoists_rnn(self.cell, dtype, *watched):
            found: tuple[Tensor, Tensor, Any]
            found = super().inner_loop(sequences, initial_state, mask, training)
            return found
        inputs = ops.transpose(sequences, (1, 0, 2))
        if mask is not None:
            mask = ops.transpose(ops.cast(mask, "bool"))
        if self.go_backwards:
            inputs = ops.flip(inputs, axis=0)
            mask = None if mask is None else ops.flip(mask, axis=0)
        outputs, state = run(self.cell, inputs, list(initial_state), mask)
        last = state[0]
        if mask is not None:
            # Keras has zeros where nothing was put out before, whatever the initial state is.
            shown = mask
            if not self.zero_output_for_mask:
                shown = ops.cumsum(ops.cast(mask, "int32"), axis=0) > 0
            outputs = ops.where(ops.expand_dims(shown, -1), outputs, ops.zeros_like(outputs))
            last = outputs[-1]
        return last, ops.transpose(outputs, (1, 0, 2)), state
