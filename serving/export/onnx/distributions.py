"""Distributions: scores and a mask in, attention weights out; what is masked gets 0.

Formulas and papers are those of `keras_attention.distributions`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from serving.export.onnx.graph import Graph, Value

_LOWEST = float(np.finfo("float32").min)


def softmax(g: Graph, scores: Value, mask: Value) -> Value:
    """Softmax over the last axis."""
    hidden = g("Where", mask, scores, _LOWEST)
    return _visible(g, g("Softmax", hidden, axis=-1), mask)


def sparsemax(g: Graph, scores: Value, mask: Value) -> Value:
    """Algorithm 1 of Martins and Astudillo 2016 (arXiv 1602.02068)."""
    z, ordered, rank = _ordered(g, scores, mask)
    total = _running(g, ordered)
    inside = g.cast((rank * ordered + 1.0) > total, "float32")
    size = g.over("ReduceSum", inside, -1, keep=True)
    threshold = (g.over("ReduceSum", inside * ordered, -1, keep=True) - 1.0) / size
    return _visible(g, g("Relu", z - threshold), mask)


def entmax15(g: Graph, scores: Value, mask: Value) -> Value:
    """Algorithm 2 of Peters et al. 2019 (arXiv 1905.05702)."""
    z, ordered, rank = _ordered(g, scores * 0.5, mask)
    mean = _running(g, ordered) / rank
    square = _running(g, ordered * ordered) / rank
    spread = rank * (square - mean * mean)
    thresholds = mean - g("Sqrt", g("Relu", (1.0 - spread) / rank))
    inside = g.cast(ordered >= thresholds, "float32")
    last = g.cast(g("Equal", rank, g.over("ReduceSum", inside, -1, keep=True)), "float32")
    root = g("Relu", z - g.over("ReduceSum", last * thresholds, -1, keep=True))
    return _visible(g, root * root, mask)


BY_NAME: dict[str, Callable[[Graph, Value, Value], Value]] = {
    "softmax": softmax,
    "sparsemax": sparsemax,
    "entmax15": entmax15,
}


def _ordered(g: Graph, scores: Value, mask: Value) -> tuple[Value, Value, Value]:
    """Return the scores less their highest, the same from the greatest on, and ranks from 1."""
    hidden = g("Where", mask, scores, -1e30)
    z = g("Max", hidden - g.over("ReduceMax", hidden, -1, keep=True), -2.0)
    length = g("Shape", z, start=-1)
    ordered, _ = g.top(z, length)
    count = g("Squeeze", length)
    rank = g("Range", g.constant(1), count + 1, g.constant(1))
    return z, ordered, g.cast(rank, "float32")


def _running(g: Graph, x: Value) -> Value:
    """Return the sums up to each place of the last axis."""
    return g("CumSum", x, g.constant(-1))


def _visible(g: Graph, weights: Value, mask: Value) -> Value:
    return g("Where", mask, weights, 0.0)
