"""Faster forms of `keras.layers.RNN` and `keras.layers.Bidirectional`, mainly for training."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_attention import backend
from keras_attention.fast import _loop as loop
from keras_attention.layer import expect_known_length, note_length
from keras_attention.recurrent import keras_cells
from keras_attention.shapes import Tensor


@keras.saving.register_keras_serializable("keras_attention")
class HoistedRNN(keras.layers.RNN):
    """`keras.layers.RNN` that trains faster on TensorFlow: see `keras_attention.fast._loop`.

    Arguments, call arguments, weights and results are those of `keras.layers.RNN`. Cells that the
    fast loop does not support, and most runs on other backends, use Keras's loop.

    Example:
        ```python
        states = HoistedRNN(keras.layers.LSTMCell(8))(keras.random.normal((2, 3, 5)))  # (2, 8)
        ```
    """

    def build(self, sequences_shape: Any, initial_state_shape: Any = None) -> None:
        """Make the weights of the cell."""
        super().build(sequences_shape, initial_state_shape)
        self.supports_masking = True  # since Keras 3.16, Keras's RNN layers pass no mask on
        for cell in keras_cells.parts(self.cell):
            dtype = getattr(cell, "compute_dtype", self.compute_dtype)
            if dtype != self.compute_dtype:
                expected = f"{type(self).__name__} expected a cell with its dtype"
                received = f"{type(cell).__name__} of {dtype}"
                raise ValueError(f"{expected}, {self.compute_dtype}. Received: {received}")

    def compute_output_spec(self, sequences: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the symbolic outputs."""
        note_length(self, sequences)
        return super().compute_output_spec(sequences, *args, **kwargs)

    def call(
        self,
        sequences: Tensor,
        initial_state: Any = None,
        mask: Tensor | None = None,
        training: bool = False,
    ) -> Any:
        """Run the layer; unlike Keras's layer, it draws no dropout masks at inference."""
        expect_known_length(self, sequences)
        layer = keras_cells.view(self, cell=keras_cells.for_call(self.cell, training))
        return super(HoistedRNN, layer).call(sequences, initial_state, mask, training)

    def inner_loop(
        self, sequences: Tensor, initial_state: Any, mask: Tensor | None, training: bool = False
    ) -> Any:
        """Run the fast loop, or Keras's; `keras.layers.RNN.call` calls this method.

        Returns the last output `(B, ·)`, all outputs `(B, T, ·)` and the last states.
        """
        gates = keras_cells.hoisted(self.cell)
        if self.stateful or self.unroll or gates is None:
            return super().inner_loop(sequences, initial_state, mask, training)
        inputs, mask = self.order_steps(sequences, mask)
        return self.lay_out(*loop.run_cell(gates, inputs, list(initial_state), mask), mask)

    def order_steps(self, sequences: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return inputs `(T, B, dim)` and mask `(T, B)`, reversed in time if `go_backwards`.

        `sequences` are `(B, T, dim)`, the mask is `(B, T)` or None.
        """
        inputs = ops.transpose(sequences, (1, 0, 2))
        if mask is not None:
            mask = ops.transpose(ops.cast(mask, "bool"))
        if self.go_backwards:
            inputs = ops.flip(inputs, axis=0)
            mask = None if mask is None else ops.flip(mask, axis=0)
        return inputs, mask

    def lay_out(
        self, outputs: Tensor, state: list[Tensor], mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Any]:
        """Return the last output `(B, ·)`, all outputs `(B, T, ·)` and the last states.

        The given outputs are `(T, B, ·)`, the mask is `(T, B)` or None.
        """
        last = state[0]
        if mask is not None:
            # As in Keras, outputs are zeros until the first valid step, for any initial state.
            visible = mask
            if not self.zero_output_for_mask:
                visible = ops.cumsum(ops.cast(mask, "int32"), axis=0) > 0
            outputs = ops.where(ops.expand_dims(visible, -1), outputs, ops.zeros_like(outputs))
            last = outputs[-1]
        return last, ops.transpose(outputs, (1, 0, 2)), state


@keras.saving.register_keras_serializable("keras_attention")
class HoistedBidirectional(keras.layers.Bidirectional):
    """`keras.layers.Bidirectional` of a `HoistedRNN`: under XLA on a GPU, one loop for both ways.

    Arguments, call arguments, weights and results are those of `keras.layers.Bidirectional`.
    """

    def call(
        self,
        sequences: Tensor,
        initial_state: Any = None,
        mask: Tensor | None = None,
        training: bool | None = None,
    ) -> Any:
        """Run both directions, in one loop if possible."""
        layers = self.forward_layer, self.backward_layer
        gates: list[Any] = [keras_cells.hoisted(layer.cell) for layer in layers]
        if (
            not backend.for_gpu()
            or None in gates
            or not gates[0].can_run_with(gates[1])
            or initial_state is not None
            or self.merge_mode != "concat"
            or self.stateful
            or layers[0].unroll
            or not layers[0].return_sequences
        ):
            return super().call(sequences, initial_state, mask, training)
        ordered = [layer.order_steps(sequences, mask) for layer in layers]
        inputs, masks = ([pair[n] for pair in ordered] for n in range(2))
        states = [list(layer.get_initial_state(ops.shape(sequences)[0])) for layer in layers]
        runs = loop.run_cells(gates, inputs, states, None if mask is None else masks)
        forward, backward = (
            layer.lay_out(*run, each) for layer, run, each in zip(layers, runs, masks, strict=True)
        )
        outputs = ops.concatenate([forward[1], ops.flip(backward[1], axis=1)], axis=-1)
        return (outputs, *forward[2], *backward[2]) if self.return_state else outputs
