"""Recurrent cells and layers in ONNX: a step as formulas; a sequence by an operator or a Scan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import keras
import numpy as np

from serving.portable.write._graph import Graph, Value
from serving.portable.write._products import Products

_KINDS = {
    keras.layers.SimpleRNNCell: "rnn",
    keras.layers.GRUCell: "gru",
    keras.layers.LSTMCell: "lstm",
}
_STATES = {"rnn": 1, "gru": 1, "lstm": 2}
_OWN = {"rnn": "RNN", "gru": "GRU", "lstm": "LSTM"}
# ONNX's order of gates, as indices into Keras's order: z, r, candidate; i, o, f, candidate.
_ORDER = {"rnn": [0], "gru": [0, 1, 2], "lstm": [0, 3, 1, 2]}


@dataclass(frozen=True)
class Cell:
    """A cell's weights, with Keras's order of gates: z, r, candidate; i, f, candidate, o.

    Attributes:
        kind: "rnn", "gru" or "lstm".
        units: the width of the state.
        kernel: multiplies inputs, `(dim, gates · units)`.
        recurrent: multiplies the state, `(units, gates · units)`.
        kernel_bias: is added to the product of the inputs, `(gates · units,)`.
        recurrent_bias: is added to the product of the state, `(gates · units,)`.
    """

    kind: str
    units: int
    kernel: np.ndarray
    recurrent: np.ndarray
    kernel_bias: np.ndarray
    recurrent_bias: np.ndarray

    @property
    def states(self) -> int:
        """The number of states."""
        return _STATES[self.kind]


def read_cell(cell: Any) -> Cell:
    """Return the weights of a built Keras cell of `training.model`."""
    kernel, recurrent, bias = map(array, (cell.kernel, cell.recurrent_kernel, cell.bias))
    zeros = np.zeros(kernel.shape[1], "float32")
    of_inputs, of_state = bias if bias.ndim == 2 else (bias, zeros)
    return Cell(_KINDS[type(cell)], cell.units, kernel, recurrent, of_inputs, of_state)


def array(weight: Any) -> np.ndarray:
    """Return a Keras variable of TensorFlow's backend as NumPy."""
    return np.asarray(weight.value.numpy())


def advance(
    g: Graph, cell: Cell, of_inputs: Value, of_state: Value, states: Sequence[Value]
) -> list[Value]:
    """Return the next states `(rows, units)`, the first of which is the output.

    `of_inputs` and `of_state` are products `(rows, gates · units)` of the inputs and of the first
    state, with their biases.
    """
    return _STEPS[cell.kind](g, cell, of_inputs, of_state, *states)


def _rnn(g: Graph, cell: Cell, of_inputs: Value, of_state: Value, h: Value) -> list[Value]:
    return [g("Tanh", of_inputs + of_state)]


def _gru(g: Graph, cell: Cell, of_inputs: Value, of_state: Value, h: Value) -> list[Value]:
    parts = (2 * cell.units, cell.units)
    gates, candidate = g.split(of_inputs, parts)  # (rows, 2 · units), (rows, units)
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


_STEPS: dict[str, Any] = {"rnn": _rnn, "gru": _gru, "lstm": _lstm}


class Inputs(NamedTuple):
    """The inputs of a recurrent layer.

    Attributes:
        x: vectors `(S, B, dim)`, or ids `(S, B)` of `embeddings`.
        embeddings: `(V, dim)`, or None if `x` has vectors.
        there: false for padding, boolean `(S, B, 1)`.
        lengths: without padding, int32 `(B,)`; None if padding may be in the middle.
    """

    x: Value
    embeddings: np.ndarray | None
    there: Value
    lengths: Value | None


def read_layers(encoder: keras.Model) -> list[list[Cell]]:
    """Return a list for each recurrent layer of an encoder: a cell for each direction."""
    cells = []
    for layer in encoder.layers:
        if isinstance(layer, keras.layers.Bidirectional):
            both = layer.forward_layer, layer.backward_layer
            cells.append([read_cell(each.cell) for each in both])
        elif isinstance(layer, keras.layers.RNN):
            cells.append([read_cell(layer.cell)])
    return cells


def read_sequence(
    g: Graph, times: Products, layers: list[list[Cell]], inputs: Inputs, bits: int
) -> tuple[Value, Value]:
    """Return the last layer's outputs `(B, S, ·)`, and its last states in one vector `(B, ·)`.

    `layers` is the result of `read_layers`. In float32 and with lengths, an ONNX operator reads the
    sequence; otherwise a Scan does.
    """
    last: list[Value] = []
    for cells in layers:
        own = bits == 32 and inputs.lengths
        x, last = (_by_own if own else _by_scan)(g, times, cells, inputs)
        inputs = inputs._replace(x=x, embeddings=None)
    return g("Transpose", inputs.x, perm=[1, 0, 2]), g.concat(last, axis=-1)


def _by_own(
    g: Graph, times: Products, cells: list[Cell], inputs: Inputs
) -> tuple[Value, list[Value]]:
    """Return outputs `(S, B, ·)` and each direction's last state `(B, units)`, by an operator."""
    (kind,) = {cell.kind for cell in cells}
    x = inputs.x if inputs.embeddings is None else times.look_up(inputs.embeddings, inputs.x)

    def ordered(weights: np.ndarray) -> np.ndarray:
        parts = np.split(weights, len(_ORDER[kind]), axis=-1)
        return np.concatenate([parts[i] for i in _ORDER[kind]], axis=-1)

    biases = [np.concatenate(list(map(ordered, (c.kernel_bias, c.recurrent_bias)))) for c in cells]
    more: dict[str, Any] = {"linear_before_reset": 1} if kind == "gru" else {}
    y, last, *_ = g(
        _OWN[kind],
        x,
        # (directions, gates · units, ·)
        np.stack([ordered(cell.kernel).T for cell in cells]),
        np.stack([ordered(cell.recurrent).T for cell in cells]),
        np.stack(biases),
        inputs.lengths,
        outputs=1 + cells[0].states,
        hidden_size=cells[0].units,
        direction="bidirectional" if len(cells) > 1 else "forward",
        **more,
    )
    # (S, directions, B, units) to (S, B, directions · units)
    y = g.reshape(g("Transpose", y, perm=[0, 2, 1, 3]), 0, 0, len(cells) * cells[0].units)
    each = g("Split", last, outputs=len(cells), axis=0, num_outputs=len(cells))
    return y, [g.squeeze(one, 0) for one in (each if len(cells) > 1 else [last])]


def _by_scan(
    g: Graph, times: Products, cells: list[Cell], inputs: Inputs
) -> tuple[Value, list[Value]]:
    """Return the outputs and last states of `_by_own`, by one Scan over all directions."""
    steps, first = {}, {}
    batch = g.size(inputs.x, 1)
    for number, cell in enumerate(cells):
        if inputs.embeddings is None:
            gates = times(inputs.x, cell.kernel, cell.kernel_bias, bounded=True)
        else:
            gates = times.embedded(inputs.embeddings, inputs.x, cell.kernel, cell.kernel_bias)
        steps[f"gates_{number}"], steps[f"there_{number}"] = gates, inputs.there
        for state in range(cell.states):
            first[f"state_{number}_{state}"] = g.expand(0.0, batch, cell.units)

    def step(
        before: dict[str, Value], now: dict[str, Value]
    ) -> tuple[dict[str, Value], list[Value]]:
        new = {}
        for number, cell in enumerate(cells):
            names = [f"state_{number}_{state}" for state in range(cell.states)]
            old = [before[name] for name in names]
            of_state = times(old[0], cell.recurrent, cell.recurrent_bias, bounded=True)
            made = advance(g, cell, now[f"gates_{number}"], of_state, old)
            for name, was, is_ in zip(names, old, made, strict=True):
                new[name] = g("Where", now[f"there_{number}"], is_, was)
        return new, [new[f"state_{number}_0"] for number in range(len(cells))]

    backwards = list(range(len(cells)))  # the second direction reads from the end
    last, outputs = g.scan(
        first,
        steps,
        step,
        ranks=[2] * (len(first) + len(cells)),
        directions=[way for way in backwards for _ in range(2)],
        output_directions=backwards,
    )
    return g.concat(outputs, axis=-1), [last[f"state_{n}_0"] for n in range(len(cells))]
