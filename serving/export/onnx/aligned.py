"""The decoder of `training.model.aligned`: its step, which says all of it."""

from __future__ import annotations

import keras
import numpy as np

from serving.export.onnx.cells import advance, array, read_cell
from serving.export.onnx.decoder import Step
from serving.export.onnx.graph import Graph, Value
from serving.export.onnx.mechanisms.mechanism import Rows, Shape, Values
from serving.export.onnx.products import Products
from training.model.aligned import FARTHEST, NEVER, TINY


class Aligned:
    """An `AlignedDecoder`, with the attributes and methods of `Decoder`.

    Args:
        model: of `training.model`.
    """

    def __init__(self, model: keras.Model) -> None:
        layer = model.get_layer("decoder")
        self._cell = read_cell(layer.cell)
        self._embeddings = array(layer.embedding.embeddings)
        self.vocabulary, _ = self._embeddings.shape
        self.state_sizes = [self._cell.units] * self._cell.states
        self._query, self._of_state = array(layer.query.kernel), array(layer.of_state.kernel)
        self._key, self._of_memory, self._output = (
            [array(weight) for weight in dense.weights]
            for dense in (layer.key, layer.of_memory, layer.output_layer)
        )
        self._score = array(layer.score.kernel)
        # The last weight is that of all ways back.
        self._ways = np.append(array(layer.ways), np.float32(NEVER))

    def prepare(self, g: Graph, memory: Value, mask: Value) -> Values:
        """See `Decoder`."""
        keys, values = (memory @ kernel + bias for kernel, bias in (self._key, self._of_memory))
        return {"keys": keys, "values": values, "mask": mask}

    def start(self, g: Graph, memory: Value, states: list[Value]) -> Values:
        """See `Decoder`."""
        places = g.axis(self._places(g, g.size(memory, 1)), 1)
        first = g("Where", g("Equal", places, 0), 0.0, NEVER)
        said = g.expand(first, g.size(memory, 0), g.size(memory, 1), self.vocabulary)
        return {"said": said, **{f"state_{number}": x for number, x in enumerate(states)}}

    def shapes(self) -> dict[str, Shape]:
        """See `Decoder`."""
        return {
            "keys": ("S", self._key[0].shape[1]),
            "values": ("S", self._of_memory[0].shape[1]),
            "mask": (1, "S"),
            "said": ("S", self.vocabulary),
            **{f"state_{number}": (size,) for number, size in enumerate(self.state_sizes)},
        }

    def step(self, g: Graph, times: Products, tokens: Value, memory: Values, state: Values) -> Step:
        """Take a step, see `Decoder`; the output is log-probabilities."""
        rows = Rows(g, g.size(memory["mask"], 0))
        names = [f"state_{number}" for number in range(len(self.state_sizes))]
        states = [state[name] for name in names]
        cell = self._cell
        gates = times.embedded(self._embeddings, tokens, cell.kernel, cell.kernel_bias)
        of_state = times(states[0], cell.recurrent, cell.recurrent_bias, bounded=True)
        states = advance(g, cell, gates, of_state, states)

        length = g.size(memory["mask"], 2)
        token = g("Equal", g.axis(tokens, 1), np.arange(self.vocabulary))
        chosen = state["said"] * g.axis(g.cast(token, "float32"), 1)
        was = rows.apart(g("Softmax", g.over("ReduceSum", chosen, 2), axis=-1), length)
        moves = self._moves(g, times, states[0], memory, rows)
        places = g.squeeze(g.axis(was, 2) @ moves, 2)
        log_places = g("Log", g("Max", places, TINY))
        vector = rows.apart(times(states[0], self._of_state, bounded=True), self._of_state.shape[1])
        vector = g("Tanh", g.axis(vector, 2) + g.axis(memory["values"], 1))
        kernel, bias = self._output
        spoken = g("LogSoftmax", times(vector, kernel, bias, bounded=True), axis=-1)
        said = rows.together(g.axis(log_places, 3) + spoken, length, self.vocabulary)
        new = dict(zip(names, states, strict=True))
        return Step(_log_sum_exp(g, said, 1), places, {**new, "said": said})

    def log_probs(self, g: Graph, times: Products, output: Value, part: int) -> Value:
        """Return log-probabilities, filled up: see `Decoder`."""
        missing = -self.vocabulary % part
        if not missing:
            return output
        never = g.expand(-np.inf, g.size(output, 0), missing)
        return g.concat([output, never], axis=1)

    def _moves(self, g: Graph, times: Products, query: Value, memory: Values, rows: Rows) -> Value:
        """Return the probabilities of places after each place, `(B, n, S, S)`."""
        asked = rows.apart(times(query, self._query, bounded=True), self._query.shape[1])
        hidden = g("Tanh", g.axis(asked, 2) + g.axis(memory["keys"], 1))
        scores = g("Where", memory["mask"], g.squeeze(hidden @ self._score, -1), NEVER)
        place = self._places(g, g.size(memory["mask"], 2))
        way = g.axis(place, 0) - g.axis(place, 1)
        way = g("Where", way > FARTHEST, FARTHEST, way)
        way = g("Where", way >= 0, way, FARTHEST + 1)
        weights = g("Gather", self._ways, way, axis=0, dtype="float32")
        return g("Softmax", g.axis(scores, 2) + weights, axis=-1)

    @staticmethod
    def _places(g: Graph, length: Value) -> Value:
        return g.range(length)


def _log_sum_exp(g: Graph, x: Value, axis: int) -> Value:
    """ReduceLogSumExp in a fifth of the time, where the axis is not the last (onnxruntime 1.32)."""
    most = g.over("ReduceMax", x, axis, keep=True)
    return g("Log", g.over("ReduceSum", g("Exp", x - most), axis)) + g.squeeze(most, axis)
