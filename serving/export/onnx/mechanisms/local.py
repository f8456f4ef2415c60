"""Local attention, Luong et al. 2015 (arXiv 1508.04025, section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from serving.export.onnx.cells import array
from serving.export.onnx.graph import Graph, Value
from serving.export.onnx.mechanisms.mechanism import Mechanism, Rows, Shape, Values
from serving.export.onnx.products import Products


class Local(Mechanism):
    """Another mechanism's scores in a window around `t`, or around a predicted place."""

    parts = ("attention",)

    def __init__(self, attention: Any, *dims: int) -> None:
        super().__init__(attention, *dims)
        self._half_width = attention.half_width
        self._position = None
        if attention.predictive:
            self._position = array(attention.position_kernel), array(attention.position_scale)

    def borrow(self, mechanisms: Sequence[Mechanism]) -> None:
        """Take the scores."""
        (self._inner,) = mechanisms

    def shapes(self) -> dict[str, Shape]:
        """See the base class."""
        return {**self._inner.shapes(), "size": (1, 1), "time": (1,)}

    def prepare(self, g: Graph, memory: Value, mask: Value) -> Values:
        """Return what the scores want, and of local-p the number of valid places `(B, 1, 1)`."""
        prepared = self._inner.prepare(g, memory, mask)
        if self._position:
            prepared["size"] = g.over("ReduceSum", g.cast(mask, "float32"), 2, keep=True)
        return prepared

    def start(self, g: Graph, memory: Value) -> Values:
        """Return, for local-m, the number of queries so far, `(B, 1)`."""
        return {} if self._position else {"time": g.expand(0.0, g.size(memory, 0), 1)}

    def weigh(
        self, g: Graph, times: Products, query: Value, memory: Values, state: Values, rows: Rows
    ) -> tuple[Value, Values]:
        """Return the weights in the window."""
        length = g("Squeeze", g.size(memory["mask"], 2))
        places = g.cast(g("Range", g.constant(0), length, g.constant(1)), "float32")
        if self._position:
            kernel, scale = self._position
            hidden = g("Tanh", times.exact(query, kernel))
            center = memory["size"] * rows.apart(g("Sigmoid", hidden @ scale[:, None]), 1)
            state = {}
        else:
            center = rows.apart(state["time"], 1)
            state = {"time": state["time"] + 1.0}
        distance = places - center  # (B, n, S)
        near = self.mask(g, memory["mask"] & ~(g("Abs", distance) > float(self._half_width)))
        scores = self._inner.score(g, times, query, memory, rows)
        weights = self._distribution(g, scores, near)
        if self._position:  # a normal distribution of deviation D/2
            distance = distance if self.heads == 1 else g.axis(distance, 1)
            weights = weights * g("Exp", distance * distance * (-2.0 / self._half_width**2))
        return weights, state
