"""Multiplicative attention and the location score, Luong et al. 2015 (arXiv 1508.04025)."""

from __future__ import annotations

from typing import Any

from serving.export.onnx.cells import array
from serving.export.onnx.graph import Graph, Value
from serving.export.onnx.mechanisms.mechanism import Mechanism, Rows, Shape, Values
from serving.export.onnx.products import Products


class Multiplicative(Mechanism):
    """`q · k`, `q · k / sqrt(dim)` or `qᵀ W k`."""

    def __init__(self, attention: Any, *dims: int) -> None:
        super().__init__(attention, *dims)
        self._kernel = None
        if attention.score == "general":
            self._kernel = array(attention.kernel).T
        self._factor = 1.0 if attention.scale is None else float(array(attention.scale))
        if attention.score == "scaled_dot":
            self._factor *= (self.query_dim // self.heads) ** -0.5

    def shapes(self) -> dict[str, Shape]:
        """See the base class."""
        *lead, length, width = self.keys_shape(self.query_dim)
        return {"keys": (*lead, width, length)}

    def prepare(self, g: Graph, memory: Value, mask: Value) -> Values:
        """Return `W k` times all factors, transposed."""
        keys = memory if self._kernel is None else memory @ self._kernel
        if self._factor != 1.0:
            keys = keys * self._factor
        keys = self.split_keys(g, keys, self.query_dim)
        last = [0, 2, 1] if self.heads == 1 else [0, 1, 3, 2]
        return {"keys": g("Transpose", keys, perm=last)}

    def score(self, g: Graph, times: Products, query: Value, memory: Values, rows: Rows) -> Value:
        """Return the scores."""
        return self.split_queries(g, query, self.query_dim, rows) @ memory["keys"]


class Location(Mechanism):
    """`W q`: a score for each place, whatever stands there."""

    def __init__(self, attention: Any, *dims: int) -> None:
        super().__init__(attention, *dims)
        self._kernel = array(attention.kernel)

    def score(self, g: Graph, times: Products, query: Value, memory: Values, rows: Rows) -> Value:
        """Return the scores of the places that there are."""
        length = g.size(memory["mask"], 2)
        scores = g.slice(times(query, self._kernel, bounded=True), 0, length, 1)
        return rows.apart(scores, length)
