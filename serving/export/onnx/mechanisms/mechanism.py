"""The part of the decoder's step that belongs to a mechanism."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from serving.export.onnx.distributions import BY_NAME
from serving.export.onnx.graph import Graph, Value
from serving.export.onnx.products import Products

Values = dict[str, Value]
Shape = tuple[int | str, ...]  # "S" is the length of the memory


class Rows:
    """Rows of a search: `n` for each sentence, next to one another.

    Args:
        g: the graph.
        batch: number of sentences, int64 `(1,)`.
    """

    def __init__(self, g: Graph, batch: Value) -> None:
        self._g, self.batch = g, batch

    def apart(self, x: Value, *sizes: Value | int) -> Value:
        """From `(B·n, …)` to `(B, n, …)`; the sizes are those of the other axes."""
        return self._g.reshape(x, self.batch, -1, *sizes)

    def together(self, x: Value, *sizes: Value | int) -> Value:
        """From `(B, n, …)` to `(B·n, …)`."""
        return self._g.reshape(x, -1, *sizes)


class Mechanism:
    """Base class of the mechanisms.

    Args:
        attention: a built layer, whose weights are read.
        query_dim: width of queries.
        memory_dim: width of the memory.

    Attributes:
        heads: how many.
        query_dim: see the arguments.
        memory_dim: see the arguments.
        parts: attributes of the layer that are layers whose scores it borrows.
    """

    parts: ClassVar[tuple[str, ...]] = ()

    def __init__(self, attention: Any, query_dim: int, memory_dim: int) -> None:
        self.heads: int = attention.num_heads
        self.query_dim, self.memory_dim = query_dim, memory_dim
        self._distribution = BY_NAME[attention.distribution]

    def borrow(self, mechanisms: Sequence[Mechanism]) -> None:
        """Take the forms of `parts`."""

    def shapes(self) -> dict[str, Shape]:
        """Return by name the shapes, without the batch, of what is prepared and remembered."""
        return {}

    def prepare(self, g: Graph, memory: Value, mask: Value) -> Values:
        """Return what depends on the memory alone.

        Args:
            g: the graph.
            memory: `(B, S, dim)`.
            mask: boolean `(B, 1, S)`.

        Returns:
            Values `(B, …)` by name.
        """
        return {}

    def start(self, g: Graph, memory: Value) -> Values:
        """Return what is remembered before the first step, `(B, …)` by name."""
        return {}

    def score(self, g: Graph, times: Products, query: Value, memory: Values, rows: Rows) -> Value:
        """Return scores `(B, n, S)`, with heads `(B, heads, n, S)`.

        Args:
            g: the graph.
            times: for products of the query.
            query: `(B·n, dq)`, within -1 and 1.
            memory: what `prepare` gave.
            rows: of the search.
        """
        raise NotImplementedError

    def weigh(
        self, g: Graph, times: Products, query: Value, memory: Values, state: Values, rows: Rows
    ) -> tuple[Value, Values]:
        """Return weights of the shape of the scores, and what is remembered now.

        Args:
            g: the graph.
            times: see `score`.
            query: see `score`.
            memory: what `prepare` gave, and `mask`.
            state: what was remembered, `(B·n, …)`.
            rows: see `score`.
        """
        scores = self.score(g, times, query, memory, rows)
        return self._distribution(g, scores, self.mask(g, memory["mask"])), {}

    def mask(self, g: Graph, mask: Value) -> Value:
        """Return a mask `(B, n | 1, S)` for all heads."""
        return mask if self.heads == 1 else g.axis(mask, 1)

    def split_keys(self, g: Graph, keys: Value, width: int) -> Value:
        """From keys `(B, S, width)` to `(B, heads, S, ·)`; with one head they stay."""
        if self.heads == 1:
            return keys
        apart = g.reshape(keys, 0, 0, self.heads, width // self.heads)
        return g("Transpose", apart, perm=[0, 2, 1, 3])

    def keys_shape(self, width: int) -> Shape:
        """Return the shape of `split_keys`, without the batch."""
        return ("S", width) if self.heads == 1 else (self.heads, "S", width // self.heads)

    def split_queries(self, g: Graph, query: Value, width: int, rows: Rows) -> Value:
        """From queries `(B·n, width)` to `(B, n, width)`, or `(B, heads, n, ·)`."""
        if self.heads == 1:
            return rows.apart(query, width)
        apart = rows.apart(query, self.heads, width // self.heads)
        return g("Transpose", apart, perm=[0, 2, 1, 3])


class Nothing(Mechanism):
    """A weight of 1 for the one vector that there is."""

    def weigh(
        self, g: Graph, times: Products, query: Value, memory: Values, state: Values, rows: Rows
    ) -> tuple[Value, Values]:
        """Return the weight."""
        first = g.slice(rows.apart(query, self.query_dim), 0, 1, 2)
        return first * 0.0 + 1.0, {}
