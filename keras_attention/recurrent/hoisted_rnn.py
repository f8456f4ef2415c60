"""`keras.layers.RNN` that trains faster on TensorFlow."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_attention.fast import loop
from keras_attention.recurrent import keras_cells
from keras_attention.shapes import expect_known_length

Tensor = Any


@keras.saving.register_keras_serializable("keras_attention")
class HoistedRNN(keras.layers.RNN):
    """`keras.layers.RNN` that trains faster on TensorFlow: see `keras_attention.fast.loop`.

    Arguments, call arguments, weights and results are those of `keras.layers.RNN`. Cells that the
    fast loop does not know, and other backends, run Keras's loop.

    Example:
        ```python
        states = HoistedRNN(keras.layers.LSTMCell(8))(keras.random.normal((2, 3, 5)))  # (2, 8)
        ```
    """

    def build(self, sequences_shape: Any, initial_state_shape: Any = None) -> None:
        """Make the weights of the cell."""
        super().build(sequences_shape, initial_state_shape)
        self.supports_masking = True  # since Keras 3.16 its own layers hand no mask on

    def call(
        self,
        sequences: Tensor,
        initial_state: Any = None,
        mask: Tensor | None = None,
        training: bool = False,
    ) -> Any:
        """Run the layer; at inference it draws no dropout masks, unlike Keras's."""
        expect_known_length(self, sequences)
        layer = keras_cells.view(self, cell=keras_cells.for_call(self.cell, training))
        return super(HoistedRNN, layer).call(sequences, initial_state, mask, training)

    def inner_loop(
        self, sequences: Tensor, initial_state: Any, mask: Tensor | None, training: bool = False
    ) -> tuple[Tensor, Tensor, Any]:
        """Run the loop of `keras.layers.RNN.call`."""
        gates = keras_cells.hoisted(self.cell)
        if self.stateful or self.unroll or gates is None:
            result: tuple[Tensor, Tensor, Any]
            result = super().inner_loop(sequences, initial_state, mask, training)
            return result
        inputs = ops.transpose(sequences, (1, 0, 2))
        if mask is not None:
            mask = ops.transpose(ops.cast(mask, "bool"))
        if self.go_backwards:
            inputs = ops.flip(inputs, axis=0)
            mask = None if mask is None else ops.flip(mask, axis=0)
        outputs, state = loop.run_cell(gates, inputs, list(initial_state), mask)
        last = state[0]
        if mask is not None:
            # Keras has zeros where nothing was put out before, whatever the initial state is.
            visible = mask
            if not self.zero_output_for_mask:
                visible = ops.cumsum(ops.cast(mask, "int32"), axis=0) > 0
            outputs = ops.where(ops.expand_dims(visible, -1), outputs, ops.zeros_like(outputs))
            last = outputs[-1]
        return last, ops.transpose(outputs, (1, 0, 2)), state
