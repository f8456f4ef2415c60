"""Additive attention, Bahdanau et al. 2014 (arXiv 1409.0473)."""

from __future__ import annotations

from typing import Any

import numpy as np

from serving.export.onnx.cells import array
from serving.export.onnx.graph import Graph, Value
from serving.export.onnx.mechanisms.mechanism import Mechanism, Rows, Shape, Values
from serving.export.onnx.products import Products


class Additive(Mechanism):
    """`vᵀ tanh(W q + U k + b)`."""

    def __init__(self, attention: Any, *dims: int) -> None:
        super().__init__(attention, *dims)
        self.units = attention.units
        self._query, self._key = array(attention.query_kernel), array(attention.key_kernel)
        self._bias = None if attention.bias is None else array(attention.bias)
        scale = array(attention.scale).reshape(self.heads, -1)
        if attention.normalize:
            length = np.sqrt(np.square(scale).sum(-1, keepdims=True))
            scale = array(attention.gain) * scale / length
        self.scale = scale.astype("float32")  # (heads, units / heads)

    def shapes(self) -> dict[str, Shape]:
        """See the base class."""
        return {"keys": self.keys_shape(self.units)}

    def prepare(self, g: Graph, memory: Value, mask: Value) -> Values:
        """Return `U k + b`."""
        keys = memory @ self._key
        keys = keys if self._bias is None else keys + self._bias
        return {"keys": self.split_keys(g, keys, self.units)}

    def project(self, g: Graph, times: Products, query: Value, rows: Rows) -> Value:
        """Return `W q`, as `split_queries` does."""
        projected = times(query, self._query, bounded=True)
        return self.split_queries(g, projected, self.units, rows)

    def energies(self, g: Graph, hidden: Value) -> Value:
        """Return `vᵀ tanh(x)` of sums `(B, [heads,] n, S, ·)`."""
        scale = self.scale[0][:, None] if self.heads == 1 else self.scale[:, None, :, None]
        return g.squeeze(g("Tanh", hidden) @ scale, -1)

    def score(self, g: Graph, times: Products, query: Value, memory: Values, rows: Rows) -> Value:
        """Return the scores."""
        projected = self.project(g, times, query, rows)
        return self.energies(g, g.axis(projected, -2) + g.axis(memory["keys"], -3))
