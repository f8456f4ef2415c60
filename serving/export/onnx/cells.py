"""Recurrent cells: their weights, and a step of each as a formula."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from serving.export.onnx.graph import Graph, Value
from training.command.errors import UserError

KINDS = {
    keras.layers.SimpleRNNCell: "rnn",
    keras.layers.GRUCell: "gru",
    keras.layers.LSTMCell: "lstm",
}
_STATES = {"rnn": 1, "gru": 1, "lstm": 2}
_ACTIVATIONS = {"activation": "tanh", "recurrent_activation": "sigmoid"}


@dataclass(frozen=True)
class Cell:
    """A cell's weights, with Keras's order of gates: z, r, candidate; i, f, candidate, o.

    Attributes:
        kind: a value of `KINDS`.
        units: width of its states.
        kernel: `(dim, gates · units)`, of inputs.
        recurrent: `(units, gates · units)`, of the state.
        kernel_bias: `(gates · units,)`, added to the products of inputs.
        recurrent_bias: likewise of the state.
    """

    kind: str
    units: int
    kernel: np.ndarray
    recurrent: np.ndarray
    kernel_bias: np.ndarray
    recurrent_bias: np.ndarray

    @property
    def states(self) -> int:
        """How many states it has."""
        return _STATES[self.kind]


def read_cell(cell: Any) -> Cell:
    """Return the weights of a built Keras cell.

    Raises:
        UserError: for a cell that has no form in ONNX here.
    """
    kind = KINDS.get(type(cell))
    if kind is None:
        raise UserError(f"ONNX expected a cell of a preset. Received: {type(cell).__name__}")
    for name, default in _ACTIVATIONS.items():
        activation = getattr(getattr(cell, name, None), "__name__", default)
        if activation != default:
            raise UserError(f"ONNX expected a cell with {name}={default}. Received: {activation}")
    if not (cell.use_bias and getattr(cell, "reset_after", True)):
        raise UserError("ONNX expected a cell with use_bias and reset_after. Received: one without")
    kernel, recurrent, bias = map(array, (cell.kernel, cell.recurrent_kernel, cell.bias))
    zeros = np.zeros(kernel.shape[1], "float32")
    of_inputs, of_state = bias if bias.ndim == 2 else (bias, zeros)
    return Cell(kind, cell.units, kernel, recurrent, of_inputs, of_state)


def array(weight: Any) -> np.ndarray:
    """Return a Keras variable of TensorFlow's backend as NumPy."""
    return np.asarray(weight.value.numpy())


def advance(
    g: Graph, cell: Cell, of_inputs: Value, of_state: Value, states: Sequence[Value]
) -> list[Value]:
    """Return the next states, the first of which is the output.

    Args:
        g: the graph.
        cell: from `read_cell`.
        of_inputs: products of the inputs, `(rows, gates · units)`, with `kernel_bias`.
        of_state: products of the first state, with `recurrent_bias`.
        states: each `(rows, units)`.
    """
    return _STEPS[cell.kind](g, cell, of_inputs, of_state, *states)


def _rnn(g: Graph, cell: Cell, of_inputs: Value, of_state: Value, h: Value) -> list[Value]:
    return [g("Tanh", of_inputs + of_state)]


def _gru(g: Graph, cell: Cell, of_inputs: Value, of_state: Value, h: Value) -> list[Value]:
    parts = (2 * cell.units, cell.units)
    gates, candidate = g.split(of_inputs, parts)
    more, inner = g.split(of_state, parts)
    z, r = g.split(g("Sigmoid", gates + more), (cell.units,) * 2)
    new = g("Tanh", candidate + r * inner)
    return [new + z * (h - new)]


def _lstm(
    g: Graph, cell: Cell, of_inputs: Value, of_state: Value, h: Value, c: Value
) -> list[Value]:
    gates, candidate, output = g.split(
        of_inputs + of_state, (2 * cell.units, cell.units, cell.units)
    )
    i, f = g.split(g("Sigmoid", gates), (cell.units,) * 2)
    c = f * c + i * g("Tanh", candidate)
    return [g("Sigmoid", output) * g("Tanh", c), c]


_STEPS: dict[str, Any] = {
    "rnn": _rnn,
    "gru": _gru,
    "lstm": _lstm,
}
