"""No attention: the memory is one vector."""

from __future__ import annotations

from serving.export.onnx.graph import Graph, Value
from serving.export.onnx.mechanisms.mechanism import Mechanism, Rows, Values
from serving.export.onnx.products import Products


class Nothing(Mechanism):
    """A weight of 1 for the one vector that there is."""

    def weigh(
        self, g: Graph, times: Products, query: Value, memory: Values, state: Values, rows: Rows
    ) -> tuple[Value, Values]:
        """Return the weight."""
        first = g.slice(rows.apart(query, self.query_dim), 0, 1, 2)
        return first * 0.0 + 1.0, {}
