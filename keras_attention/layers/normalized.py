"""Recurrent cells with layer normalisation (Ba, Kiros, Hinton 2016, arXiv 1607.06450)."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

Tensor = Any


@keras.saving.register_keras_serializable("keras_attention")
class LayerNormGRUCell(keras.layers.GRUCell):
    """A GRU cell whose sums are normalised over the units, for each example and step alone.

    With `LN(a; g, b) = g (a - mean(a)) / sqrt(var(a) + epsilon) + b` (eq. 4), after the paper's
    supplementary material. `z` is the share that is kept, as in Keras; there it is the new share.

        [z; r] = sigmoid(LN([W_z; W_r] x) + LN([U_z; U_r] h))
        candidate = tanh(LN(W_c x) + r * LN(U_c h))
        h' = z * h + (1 - z) * candidate

    Args:
        units: width of the state.
        epsilon: added to the variances.
        **kwargs: further arguments of `keras.layers.GRUCell`. `use_bias` and `reset_after` stay
            True: the `bias` holds the shifts `b`. `dropout` and `recurrent_dropout` have one mask
            for all gates.

    Call arguments:
        inputs: `(B, dim)`.
        states: list of `(B, units)`.
        training: whether dropout is applied.

    Output:
        `(B, units)`, and a list of the same as the next state.

    Weights: those of `keras.layers.GRUCell`, and the gains `kernel_gain` and `recurrent_gain`,
    each `(3 units,)`.

    Raises:
        ValueError: with `use_bias` or `reset_after` False.

    Example:
        ```python
        states = keras.layers.RNN(LayerNormGRUCell(8))(keras.random.normal((2, 3, 5)))  # (2, 8)
        ```
    """

    def __init__(self, units: int, epsilon: float = 1e-3, **kwargs: Any) -> None:
        super().__init__(units, **kwargs)
        if not (self.use_bias and self.reset_after):
            raise ValueError(
                "LayerNormGRUCell expected use_bias and reset_after to be True. Received: "
                f"use_bias={self.use_bias}, reset_after={self.reset_after}"
            )
        self.epsilon = epsilon
        self.dropout_mask_count = None  # one mask for all gates

    def build(self, input_shape: tuple[Any, ...]) -> None:
        """Make the weights."""
        super().build(input_shape)
        self.kernel_gain = self.add_weight((3 * self.units,), "ones", name="kernel_gain")
        self.recurrent_gain = self.add_weight((3 * self.units,), "ones", name="recurrent_gain")

    def call(
        self, inputs: Tensor, states: list[Tensor], training: bool = False
    ) -> tuple[Tensor, list[Tensor]]:
        """Take one step."""
        (h,) = states
        x, fed_back = _dropped_out(self, inputs, h, training)
        sums = ops.matmul(x, self.kernel)
        gates, candidate = self._normalize(sums, self.kernel_gain, self.bias[0])
        sums = ops.matmul(fed_back, self.recurrent_kernel)
        recurrent_gates, recurrent_candidate = self._normalize(
            sums, self.recurrent_gain, self.bias[1]
        )
        update, reset = ops.split(self.recurrent_activation(gates + recurrent_gates), 2, axis=-1)
        candidate = self.activation(candidate + reset * recurrent_candidate)
        h = update * h + (1 - update) * candidate
        return h, [h]

    def _normalize(self, sums: Tensor, gain: Tensor, shift: Tensor) -> list[Tensor]:
        """Normalise the gates `(B, 2 units)` together, and the candidate `(B, units)`."""
        parts = (slice(None, 2 * self.units), slice(2 * self.units, None))
        return [_layer_norm(sums[:, p], gain[p], shift[p], self.epsilon) for p in parts]

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "epsilon": self.epsilon}


@keras.saving.register_keras_serializable("keras_attention")
class LayerNormLSTMCell(keras.layers.LSTMCell):
    """An LSTM cell whose sums are normalised over the units, for each example and step alone.

    With `LN(a; g, b) = g (a - mean(a)) / sqrt(var(a) + epsilon) + b` (eq. 4), as the paper's
    supplementary material has it:

        [i; f; g; o] = LN(W x) + LN(U h) + b
        c' = sigmoid(f) * c + sigmoid(i) * tanh(g)
        h' = sigmoid(o) * tanh(LN(c'))

    The first two shifts and the bias add up: they are one weight.

    Args:
        units: width of the states.
        epsilon: added to the variances.
        **kwargs: further arguments of `keras.layers.LSTMCell`. `use_bias` stays True. `dropout` and
            `recurrent_dropout` have one mask for all gates.

    Call arguments:
        inputs: `(B, dim)`.
        states: list of `h` and `c`, each `(B, units)`.
        training: whether dropout is applied.

    Output:
        `(B, units)`, and the list of the next states.

    Weights: those of `keras.layers.LSTMCell`; the gains `kernel_gain` and `recurrent_gain`, each
    `(4 units,)`; `cell_gain` and `cell_shift`, each `(units,)`.

    Raises:
        ValueError: with `use_bias` False.

    Example:
        ```python
        states = keras.layers.RNN(LayerNormLSTMCell(8))(keras.random.normal((2, 3, 5)))  # (2, 8)
        ```
    """

    def __init__(self, units: int, epsilon: float = 1e-3, **kwargs: Any) -> None:
        super().__init__(units, **kwargs)
        if not self.use_bias:
            raise ValueError("LayerNormLSTMCell expected use_bias=True. Received: use_bias=False")
        self.epsilon = epsilon
        self.dropout_mask_count = None  # one mask for all gates

    def build(self, input_shape: tuple[Any, ...]) -> None:
        """Make the weights."""
        super().build(input_shape)
        self.kernel_gain = self.add_weight((4 * self.units,), "ones", name="kernel_gain")
        self.recurrent_gain = self.add_weight((4 * self.units,), "ones", name="recurrent_gain")
        self.cell_gain = self.add_weight((self.units,), "ones", name="cell_gain")
        self.cell_shift = self.add_weight((self.units,), "zeros", name="cell_shift")

    def call(
        self, inputs: Tensor, states: list[Tensor], training: bool = False
    ) -> tuple[Tensor, list[Tensor]]:
        """Take one step."""
        h, c = states
        x, fed_back = _dropped_out(self, inputs, h, training)
        gates = _layer_norm(ops.matmul(x, self.kernel), self.kernel_gain, self.bias, self.epsilon)
        sums = ops.matmul(fed_back, self.recurrent_kernel)
        gates = gates + _layer_norm(sums, self.recurrent_gain, None, self.epsilon)
        add, keep, candidate, show = ops.split(gates, 4, axis=-1)
        c = self.recurrent_activation(keep) * c
        c = c + self.recurrent_activation(add) * self.activation(candidate)
        shown = self.activation(_layer_norm(c, self.cell_gain, self.cell_shift, self.epsilon))
        h = self.recurrent_activation(show) * shown
        return h, [h, c]

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "epsilon": self.epsilon}


def _layer_norm(x: Tensor, gain: Tensor, shift: Tensor | None, epsilon: float) -> Tensor:
    """Return `LN(x; gain, shift)` over the last axis, of half precision computed in float32."""
    # That of `keras.ops` asks for sizes, which an export from PyTorch to ONNX does not have.
    dtype = keras.backend.standardize_dtype(x.dtype)
    wide = "float64" if dtype == "float64" else "float32"
    x = ops.cast(x, wide)
    x = x - _mean(x)
    x = x * ops.rsqrt(_mean(x * x) + epsilon) * ops.cast(gain, wide)
    return ops.cast(x if shift is None else x + ops.cast(shift, wide), dtype)


def _mean(x: Tensor) -> Tensor:
    """Return the mean over the last axis: that of `keras.ops` rounds float64 on PyTorch."""
    return ops.sum(x, axis=-1, keepdims=True) / x.shape[-1]


def _dropped_out(cell: Any, inputs: Tensor, state: Tensor, training: bool) -> tuple[Tensor, Tensor]:
    """Multiply inputs and state by the masks that the cell keeps for a sequence."""
    if training and cell.dropout:
        inputs = inputs * cell.get_dropout_mask(inputs)
    if training and cell.recurrent_dropout:
        state = state * cell.get_recurrent_dropout_mask(state)
    return inputs, state
