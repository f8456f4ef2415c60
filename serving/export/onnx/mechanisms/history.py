"""Additive attention that looks at its own past: location-sensitive, and with coverage."""

from __future__ import annotations

from typing import Any

from serving.export.onnx.cells import array
from serving.export.onnx.graph import Graph, Value
from serving.export.onnx.mechanisms.additive import Additive
from serving.export.onnx.mechanisms.mechanism import Rows, Shape, Values
from serving.export.onnx.products import Products


class History(Additive):
    """`vᵀ tanh(W q + U k + f + b)`, where `f` is made of the weights so far.

    With location (Chorowski et al. 2015, arXiv 1506.07503) it is `V (F * a')`, with coverage (See
    et al. 2017, arXiv 1704.04368) `w_c Σ a`.
    """

    def __init__(self, attention: Any, *dims: int) -> None:
        super().__init__(attention, *dims)
        self._cumulative = attention.cumulative
        self._sharpening = getattr(attention, "sharpening", 1.0)
        self._coverage = self._filters = None
        if hasattr(attention, "coverage_kernel"):
            self._coverage = array(attention.coverage_kernel)
        else:
            self._filters = array(attention.location_filter).transpose(2, 1, 0)  # (F, 1, size)
            self._kernel = array(attention.location_kernel)

    def shapes(self) -> dict[str, Shape]:
        """See the base class."""
        return {**super().shapes(), "history": ("S",)}

    def start(self, g: Graph, memory: Value) -> Values:
        """Return weights of 0, `(B, S)`."""
        return {"history": g.expand(0.0, g("Shape", memory, start=0, end=2))}

    def weigh(
        self, g: Graph, times: Products, query: Value, memory: Values, state: Values, rows: Rows
    ) -> tuple[Value, Values]:
        """Return the weights, and those or their sum so far."""
        history = state["history"]
        length = g.size(history, 1)
        features = rows.apart(self._features(g, history), length, self.units)
        projected = g.axis(self.project(g, times, query, rows), -2)
        scores = self.energies(g, projected + g.axis(memory["keys"], -3) + features)
        if self._sharpening != 1.0:
            scores = scores * self._sharpening
        weights = self._distribution(g, scores, memory["mask"])
        new = rows.together(weights, length)
        return weights, {"history": history + new if self._cumulative else new}

    def _features(self, g: Graph, history: Value) -> Value:
        """Return `f` `(B·n, S, units)` of the history `(B·n, S)`."""
        if self._filters is None:
            return g.axis(history, -1) * self._coverage
        size = self._filters.shape[2]
        pads = [(size - 1) // 2, size // 2]  # as Keras's "same"
        located = g("Conv", g.axis(history, 1), self._filters, pads=pads)
        return g("Transpose", located, perm=[0, 2, 1]) @ self._kernel
