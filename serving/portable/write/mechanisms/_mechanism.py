"""Attention mechanisms with their own scores, the distributions, and the base class.

`keras_attention.distributions` has the distributions' formulas and papers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from keras_attention import (
    AdditiveAttention,
    CoverageAttention,
    LocationAttention,
    LocationSensitiveAttention,
    MultiplicativeAttention,
)
from serving.portable.write._graph import Graph, Value, Values
from serving.portable.write._products import Products
from serving.portable.write._recurrent import array
from training.command.errors import UserError
from training.model.seq2seq import FixedContext

_LOWEST = float(np.finfo("float32").min)


def softmax(g: Graph, scores: Value, mask: Value) -> Value:
    """Return softmax over the last axis, 0 where `mask` is false."""
    hidden = g("Where", mask, scores, _LOWEST)
    return _visible(g, g("Softmax", hidden, axis=-1), mask)


def sparsemax(g: Graph, scores: Value, mask: Value) -> Value:
    """Return sparsemax, Algorithm 1 of Martins and Astudillo 2016 (arXiv 1602.02068)."""
    z, ordered, rank = _ordered(g, scores, mask)
    total = _running(g, ordered)
    inside = g.cast((rank * ordered + 1.0) > total, "float32")
    size = g.reduce("ReduceSum", inside, -1, keep=True)
    threshold = (g.reduce("ReduceSum", inside * ordered, -1, keep=True) - 1.0) / size
    return _visible(g, g("Relu", z - threshold), mask)


def entmax15(g: Graph, scores: Value, mask: Value) -> Value:
    """Return 1.5-entmax, Algorithm 2 of Peters et al. 2019 (arXiv 1905.05702)."""
    z, ordered, rank = _ordered(g, scores * 0.5, mask)
    mean = _running(g, ordered) / rank
    square = _running(g, ordered * ordered) / rank
    spread = rank * (square - mean * mean)
    thresholds = mean - g("Sqrt", g("Relu", (1.0 - spread) / rank))
    inside = g.cast(ordered >= thresholds, "float32")
    last = g.cast(g("Equal", rank, g.reduce("ReduceSum", inside, -1, keep=True)), "float32")
    root = g("Relu", z - g.reduce("ReduceSum", last * thresholds, -1, keep=True))
    return _visible(g, root * root, mask)


BY_NAME: dict[str, Callable[[Graph, Value, Value], Value]] = {
    "softmax": softmax,
    "sparsemax": sparsemax,
    "entmax15": entmax15,
}


def _ordered(g: Graph, scores: Value, mask: Value) -> tuple[Value, Value, Value]:
    """Return `z` = scores − max, at least −2, `(…, K)`; `z` in descending order; and ranks 1…K."""
    hidden = g("Where", mask, scores, -1e30)
    z = g("Max", hidden - g.reduce("ReduceMax", hidden, -1, keep=True), -2.0)
    length = g("Shape", z, start=-1)
    ordered, _ = g.top(z, length)
    return z, ordered, g.cast(g.range(length), "float32") + 1.0


def _running(g: Graph, x: Value) -> Value:
    """Return cumulative sums along the last axis."""
    return g("CumSum", x, g.constant(-1))


def _visible(g: Graph, weights: Value, mask: Value) -> Value:
    return g("Where", mask, weights, 0.0)


class Rows:
    """Reshapes a search's rows: n adjacent rows for each of `batch` sentences, int64 `(1,)`."""

    def __init__(self, g: Graph, batch: Value) -> None:
        self._g, self.batch = g, batch

    def apart(self, x: Value, *sizes: Value | int) -> Value:
        """Reshape `(B·n, …)` to `(B, n, …)`; `sizes` are the sizes of the other axes."""
        return self._g.reshape(x, self.batch, -1, *sizes)

    def together(self, x: Value, *sizes: Value | int) -> Value:
        """Reshape `(B, n, …)` to `(B·n, …)`."""
        return self._g.reshape(x, -1, *sizes)


class Mechanism:
    """Base class of the mechanisms: reads the weights of a built layer.

    `query_dim` and `memory_dim` are the widths of queries and of the memory; `heads` is how many.
    """

    def __init__(self, attention: Any, query_dim: int, memory_dim: int) -> None:
        self.heads: int = attention.num_heads
        self.query_dim, self.memory_dim = query_dim, memory_dim
        self._distribution = BY_NAME[attention.distribution]

    def prepare(self, g: Graph, memory: Value, mask: Value) -> Values:
        """Return the tensors that every step needs from the memory, `(B, …)` by name.

        `memory` is `(B, S, dim)`, `mask` boolean `(B, 1, S)`.
        """
        return {}

    def start(self, g: Graph, memory: Value) -> Values:
        """Return the state before the first step, `(B, …)` by name."""
        return {}

    def score(self, g: Graph, times: Products, query: Value, memory: Values, rows: Rows) -> Value:
        """Return scores `(B, n, S)`, with heads `(B, heads, n, S)`.

        `query` is `(B·n, dq)`, within -1 and 1; `memory` is the result of `prepare`.
        """
        raise NotImplementedError

    def weigh(
        self, g: Graph, times: Products, query: Value, memory: Values, state: Values, rows: Rows
    ) -> tuple[Value, Values]:
        """Return weights of the scores' shape, and the next state `(B·n, …)` by name.

        The arguments are those of `score`, but `memory` also has `mask`. `state` is the result of
        `start` or of the step before, `(B·n, …)` by name.
        """
        scores = self.score(g, times, query, memory, rows)
        return self._distribution(g, scores, self.mask(g, memory["mask"])), {}

    def mask(self, g: Graph, mask: Value) -> Value:
        """Return a mask `(B, n or 1, S)`, for several heads `(B, 1, n or 1, S)`."""
        return mask if self.heads == 1 else g.axis(mask, 1)

    def split_keys(self, g: Graph, keys: Value, width: int) -> Value:
        """Reshape keys `(B, S, width)` to `(B, heads, S, width / heads)`, unless heads is 1."""
        if self.heads == 1:
            return keys
        apart = g.reshape(keys, 0, 0, self.heads, width // self.heads)  # (B, S, heads, ·)
        return g("Transpose", apart, perm=[0, 2, 1, 3])

    def split_queries(self, g: Graph, query: Value, width: int, rows: Rows) -> Value:
        """Reshape queries `(B·n, width)` to `(B, n, width)`, or `(B, heads, n, width / heads)`."""
        if self.heads == 1:
            return rows.apart(query, width)
        apart = rows.apart(query, self.heads, width // self.heads)  # (B, n, heads, ·)
        return g("Transpose", apart, perm=[0, 2, 1, 3])


_FORMS: dict[type, type[Mechanism]] = {}  # by the class of the layer
M = TypeVar("M", bound=Mechanism)


def form_of(*layers: type) -> Callable[[type[M]], type[M]]:
    """Return a decorator: the decorated class writes these layers in ONNX."""

    def register(form: type[M]) -> type[M]:
        _FORMS.update(dict.fromkeys(layers, form))
        return form

    return register


def make(attention: Any, query_dim: int, memory_dim: int) -> Mechanism:
    """Return the ONNX form of a built attention layer, for queries and memories of these widths.

    Raises UserError for a layer that has none.
    """
    form = _FORMS.get(type(attention))
    if form is None:
        name = type(attention).__name__
        raise UserError(f"{name} has no form in ONNX: export it with --format savedmodel")
    return form(attention, query_dim, memory_dim)


@form_of(FixedContext)
class NoAttention(Mechanism):
    """A model without attention: its memory is one vector, with weight 1."""

    def weigh(
        self, g: Graph, times: Products, query: Value, memory: Values, state: Values, rows: Rows
    ) -> tuple[Value, Values]:
        """Return the weight 1, `(B, n, 1)`, and no state."""
        first = g.slice(rows.apart(query, self.query_dim), 0, 1, 2)
        return first * 0.0 + 1.0, {}


@form_of(AdditiveAttention)
class Additive(Mechanism):
    """`vᵀ tanh(W q + U k + b)`, Bahdanau et al. 2014 (arXiv 1409.0473)."""

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

    def prepare(self, g: Graph, memory: Value, mask: Value) -> Values:
        """Return `keys`: `U k + b`, in the shape of `split_keys`."""
        keys = memory @ self._key
        keys = keys if self._bias is None else keys + self._bias
        return {"keys": self.split_keys(g, keys, self.units)}

    def project(self, g: Graph, times: Products, query: Value, rows: Rows) -> Value:
        """Return `W q`, in the shape of `split_queries`."""
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


@form_of(LocationSensitiveAttention, CoverageAttention)
class History(Additive):
    """`vᵀ tanh(W q + U k + f + b)`, where `f` depends on the weights of earlier steps.

    With location (Chorowski et al. 2015, arXiv 1506.07503), `f` is `V (F * a')`; with coverage (See
    et al. 2017, arXiv 1704.04368), `f` is `w_c Σ a`.
    """

    def __init__(self, attention: Any, *dims: int) -> None:
        super().__init__(attention, *dims)
        self._cumulative = attention.cumulative
        self._coverage = self._filters = None
        if hasattr(attention, "coverage_kernel"):
            self._coverage = array(attention.coverage_kernel)
        else:
            self._filters = array(attention.location_filter).transpose(2, 1, 0)  # (F, 1, size)
            self._kernel = array(attention.location_kernel)

    def start(self, g: Graph, memory: Value) -> Values:
        """Return the state `history`: weights of 0, `(B, S)`."""
        return {"history": g.expand(0.0, g("Shape", memory, start=0, end=2))}

    def weigh(
        self, g: Graph, times: Products, query: Value, memory: Values, state: Values, rows: Rows
    ) -> tuple[Value, Values]:
        """Return the weights, and the next history: these weights, or the sum of all so far."""
        history = state["history"]
        length = g.size(history, 1)
        features = rows.apart(self._features(g, history), length, self.units)
        projected = g.axis(self.project(g, times, query, rows), -2)
        scores = self.energies(g, projected + g.axis(memory["keys"], -3) + features)
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


@form_of(MultiplicativeAttention)
class Multiplicative(Mechanism):
    """`q · k`, `q · k / sqrt(dim)` or `qᵀ W k`, Luong et al. 2015 (arXiv 1508.04025)."""

    def __init__(self, attention: Any, *dims: int) -> None:
        super().__init__(attention, *dims)
        self._kernel = None
        if attention.score == "general":
            self._kernel = array(attention.kernel).T
        self._factor = 1.0 if attention.scale is None else float(array(attention.scale))
        if attention.score == "scaled_dot":
            self._factor *= (self.query_dim // self.heads) ** -0.5

    def prepare(self, g: Graph, memory: Value, mask: Value) -> Values:
        """Return `keys`: scaled `W k`, `(B, dq, S)` or `(B, heads, dq / heads, S)`."""
        keys = memory if self._kernel is None else memory @ self._kernel
        if self._factor != 1.0:
            keys = keys * self._factor
        keys = self.split_keys(g, keys, self.query_dim)
        last = [0, 2, 1] if self.heads == 1 else [0, 1, 3, 2]
        return {"keys": g("Transpose", keys, perm=last)}

    def score(self, g: Graph, times: Products, query: Value, memory: Values, rows: Rows) -> Value:
        """Return the scores."""
        return self.split_queries(g, query, self.query_dim, rows) @ memory["keys"]


@form_of(LocationAttention)
class Location(Mechanism):
    """`W q`: a score for each place, independent of its content (also Luong et al. 2015)."""

    def __init__(self, attention: Any, *dims: int) -> None:
        super().__init__(attention, *dims)
        self._kernel = array(attention.kernel)

    def score(self, g: Graph, times: Products, query: Value, memory: Values, rows: Rows) -> Value:
        """Return the scores `(B, n, S)` of the source's places; `W` may have more places."""
        length = g.size(memory["mask"], 2)
        scores = g.slice(times(query, self._kernel, bounded=True), 0, length, 1)
        return rows.apart(scores, length)
