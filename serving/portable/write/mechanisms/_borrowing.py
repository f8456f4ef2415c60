"""Mechanisms that use another mechanism's scores: local and monotonic attention."""

from __future__ import annotations

from typing import Any

from keras_attention import LocalAttention, MonotonicAttention, MonotonicChunkwiseAttention
from serving.portable.write._graph import Graph, Value, Values, without_prefix
from serving.portable.write._products import Products
from serving.portable.write._recurrent import array
from serving.portable.write.mechanisms._mechanism import Mechanism, Rows, form_of, make, softmax


class _Borrowing(Mechanism):
    """Base class of mechanisms that use the scores of the layer's `attention`."""

    def __init__(self, attention: Any, *dims: int) -> None:
        super().__init__(attention, *dims)
        self._inner = make(attention.attention, *dims)

    def prepare(self, g: Graph, memory: Value, mask: Value) -> Values:
        """Return the prepared tensors of the scores."""
        return self._inner.prepare(g, memory, mask)


@form_of(LocalAttention)
class Local(_Borrowing):
    """Local attention: a window around step `t` (local-m) or around a predicted place (local-p).

    Luong et al. 2015 (arXiv 1508.04025, section 3.2).
    """

    def __init__(self, attention: Any, *dims: int) -> None:
        super().__init__(attention, *dims)
        self._half_width = attention.half_width
        self._position = None
        if attention.predictive:
            self._position = array(attention.position_kernel), array(attention.position_scale)

    def prepare(self, g: Graph, memory: Value, mask: Value) -> Values:
        """Return the scores' tensors; local-p adds `size`, the count of places, `(B, 1, 1)`."""
        prepared = super().prepare(g, memory, mask)
        if self._position:
            prepared["size"] = g.reduce("ReduceSum", g.cast(mask, "float32"), 2, keep=True)
        return prepared

    def start(self, g: Graph, memory: Value) -> Values:
        """Return the state: for local-m `time`, the number of queries so far, `(B, 1)`."""
        return {} if self._position else {"time": g.expand(0.0, g.size(memory, 0), 1)}

    def weigh(
        self, g: Graph, times: Products, query: Value, memory: Values, state: Values, rows: Rows
    ) -> tuple[Value, Values]:
        """See `Mechanism`; weights outside the window are 0."""
        places = g.cast(g.range(g.size(memory["mask"], 2)), "float32")
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
        if self._position:  # times a Gaussian with standard deviation D/2
            distance = distance if self.heads == 1 else g.axis(distance, 1)
            weights = weights * g("Exp", distance * distance * (-2.0 / self._half_width**2))
        return weights, state


@form_of(MonotonicAttention)
class Monotonic(_Borrowing):
    """Monotonic attention: moves right, and stops with probability `sigmoid(e + r)`.

    Raffel et al. 2017 (arXiv 1704.00784).
    """

    def __init__(self, attention: Any, *dims: int) -> None:
        super().__init__(attention, *dims)
        self._bias, self._hard = float(array(attention.score_bias)), attention.mode == "hard"

    def start(self, g: Graph, memory: Value) -> Values:
        """Return the state `stopped`: a weight of 1 at the first place, `(B, [heads,] S)`."""
        length = g.size(memory, 1)
        first = g.cast(g("Equal", g.range(length), 0), "float32")
        heads = [self.heads] if self.heads > 1 else []
        return {"stopped": g.expand(first, g.size(memory, 0), *heads, length)}

    def weigh(
        self, g: Graph, times: Products, query: Value, memory: Values, state: Values, rows: Rows
    ) -> tuple[Value, Values]:
        """See `Mechanism`; a weight is the probability of stopping at a place."""
        scores = self._inner.score(g, times, query, memory, rows) + self._bias
        stop = g.cast(scores > 0.0, "float32") if self._hard else g("Sigmoid", scores)
        stop = g("Where", self.mask(g, memory["mask"]), stop, 0.0)
        heads = [self.heads] if self.heads > 1 else []
        length = g.size(stop, 2 + len(heads))
        if heads:  # (B, heads, n, S) to (B, n, heads, S), and back below
            stop = g("Transpose", stop, perm=[0, 2, 1, 3])
        stop = g.reshape(stop, -1, length)  # (B·n·heads, S)
        weights = stop * self._arrived(g, stop, g.reshape(state["stopped"], -1, length))
        apart = rows.apart(weights, *heads, length)
        if heads:
            apart = g("Transpose", apart, perm=[0, 2, 1, 3])
        return apart, {"stopped": rows.together(weights, *heads, length)}

    def _arrived(self, g: Graph, stop: Value, previous: Value) -> Value:
        """Return probabilities `(rows, S)` of arriving: `q_j = (1 - p_{j-1}) q_{j-1} + a'_j`."""

        def arrive(before: Values, now: Values) -> tuple[Values, list[Value]]:
            q = before["go_on"] + now["previous"]
            return {"go_on": (1.0 - now["stop"]) * q}, [q]

        by_place = {"stop": stop, "previous": previous}
        steps = {name: g("Transpose", x, perm=[1, 0]) for name, x in by_place.items()}  # (S, rows)
        first = {"go_on": g.expand(0.0, g.size(stop, 0))}
        _, (arrived,) = g.scan(first, steps, arrive, ranks=[1, 1])
        return g("Transpose", arrived, perm=[1, 0])


@form_of(MonotonicChunkwiseAttention)
class Chunkwise(Monotonic):
    """Monotonic attention with softmax over the chunk that ends at the stop.

    Chiu and Raffel 2018 (arXiv 1712.05382).
    """

    def __init__(self, attention: Any, *dims: int) -> None:
        super().__init__(attention, *dims)
        self._size = attention.chunk_size
        self._chunk = make(attention.chunk_attention, *dims)

    def prepare(self, g: Graph, memory: Value, mask: Value) -> Values:
        """Return the tensors of both scores; names of the chunk's tensors begin with `chunk_`."""
        chunk = self._chunk.prepare(g, memory, mask)
        return {
            **super().prepare(g, memory, mask),
            **{f"chunk_{name}": x for name, x in chunk.items()},
        }

    def weigh(
        self, g: Graph, times: Products, query: Value, memory: Values, state: Values, rows: Rows
    ) -> tuple[Value, Values]:
        """Return `b_j = Σ_{k=j}^{j+w-1} a_k exp(u_j) / Σ_{l=k-w+1}^{k} exp(u_l)`."""
        stops, state = super().weigh(g, times, query, memory, state, rows)
        own = {**memory, **without_prefix(memory, "chunk_")}
        scores = self._chunk.score(g, times, query, own, rows)
        visible = g.cast(self.mask(g, memory["mask"]), "float32")
        inside = self._chunks(g, visible) > 0.5
        shares = softmax(g, self._chunks(g, scores), inside)  # (B, [heads,] n, S, w)
        parts = g.split(shares * g.axis(stops, -1), [1] * self._size)
        # Part o of the chunk that ends at k belongs to place k - (w - 1 - o).
        moved = [
            self._moved(g, g.squeeze(part, -1), o - (self._size - 1))
            for o, part in enumerate(parts)
        ]
        return g("Sum", *moved), state

    def _chunks(self, g: Graph, x: Value) -> Value:
        """Return `(…, S, w)`: at place k, the values of `x` at places k-w+1 … k."""
        moved = [self._moved(g, x, self._size - 1 - o) for o in range(self._size)]
        return g.concat([g.axis(x, -1) for x in moved], axis=-1)

    def _moved(self, g: Graph, x: Value, distance: int) -> Value:
        """Return `x` `(B, [heads,] n, S)` shifted right by `distance`, left if negative.

        Zeros fill the places at the end.
        """
        if not distance:
            return x
        last = 2 if self.heads == 1 else 3
        length, others = g.size(x, last), [0] * last
        before, after = max(distance, 0), max(-distance, 0)
        padded = g("Pad", x, g.constant([*others, before, *others, after], "int64"))
        return g.slice(padded, after, length + after, last)
