"""Products with constant kernels, in float32 or in eight bits."""

from __future__ import annotations

import numpy as np

from serving.portable.write._graph import Graph, Value

LARGEST = 127  # largest int8 weight
ZERO = 128  # zero point of activations: uint8 times int8 has fast kernels, int8 times int8 has none
_LEAST = 1e-9  # smallest scale, for a row of zeros
TABLE = 2**25  # most numbers in a table of a vocabulary's products


class Products:
    """Multiplies rows `(…, m)` by kernels `(m, n)`, in float32 or in int8.

    In int8, a kernel has one scale for each column. Activations have one scale for each row, so
    that no row depends on another; or one fixed scale, if all numbers are within -1 and 1.

    Args:
        graph: the graph that products are added to.
        bits: 32 for float32, 8 for int8.
        tables: whether to store the products of a whole vocabulary: faster, several times as large.
    """

    def __init__(self, graph: Graph, bits: int, tables: bool = True) -> None:
        self._g, self._bits, self._tables = graph, bits, tables
        self._quantized: dict[tuple[str, bool], tuple[Value, Value | None]] = {}

    def __call__(
        self, x: Value, kernel: np.ndarray, bias: np.ndarray | None = None, bounded: bool = False
    ) -> Value:
        """Return `x @ kernel + bias`, `(…, n)`.

        Args:
            x: float32 `(…, m)`.
            kernel: `(m, n)`.
            bias: `(n,)`, or None.
            bounded: whether all numbers of `x` are known to be within -1 and 1.
        """
        if self._bits == 32:
            return self.exact(x, kernel, bias)
        g, (whole, scale) = self._g, quantized(kernel, 0)
        rows, of_rows = self._rows(x, bounded)
        y = g("MatMulInteger", rows, whole, g.constant(ZERO, "uint8"))
        y = g.cast(y, "float32")
        y = y * (scale / LARGEST) if of_rows is None else y * of_rows * scale
        return y if bias is None else y + bias

    def exact(self, x: Value, kernel: np.ndarray, bias: np.ndarray | None = None) -> Value:
        """Return `x @ kernel + bias`, `(…, n)`, in float32 whatever `bits` is."""
        y = x @ np.asarray(kernel, "float32")
        return y if bias is None else y + np.asarray(bias, "float32")

    def look_up(self, table: np.ndarray, rows: Value) -> Value:
        """Return rows `(…, n)` of a table `(V, n)`; an int8 table has one scale for each row."""
        g = self._g
        if self._bits == 32:
            return g.gather(np.asarray(table, "float32"), rows)
        whole, scale = quantized(table, 1)
        return g.cast(g.gather(whole, rows), "float32") * g.gather(scale, rows)

    def embedded(
        self, embeddings: np.ndarray, tokens: Value, kernel: np.ndarray, bias: np.ndarray
    ) -> Value:
        """Return `embeddings[tokens] @ kernel + bias`, `(…, n)`; `embeddings` are `(V, m)`."""
        if self._tables and len(embeddings) * kernel.shape[1] <= TABLE:
            return self.look_up(embeddings @ kernel + bias, tokens)
        return self(self.look_up(embeddings, tokens), kernel, bias)

    def _rows(self, x: Value, bounded: bool) -> tuple[Value, Value | None]:
        """Return `x` as uint8 with zero point `ZERO`, and its scales `(…, 1)`, None if fixed."""
        key = (x.name, bounded)
        if key not in self._quantized:
            g, zero = self._g, self._g.constant(ZERO, "uint8")
            if bounded:
                fixed = g.constant(1 / LARGEST, "float32")
                self._quantized[key] = g("QuantizeLinear", x, fixed, zero), None
            else:
                most = g.reduce("ReduceMax", g("Abs", x), -1, keep=True)
                scale = g("Max", most * (1 / LARGEST), _LEAST)
                unit = g.constant(1, "float32")
                self._quantized[key] = g("QuantizeLinear", x / scale, unit, zero), scale
        return self._quantized[key]


def quantized(array: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Return an array as int8, and float32 scales: the array is about int8 times scale.

    Axis 0 gives each column of a kernel `(m, n)` a scale, `(n,)`; axis 1 gives each row of a table
    `(V, n)` a scale, `(V, 1)`.
    """
    scale = np.maximum(np.abs(array).max(axis, keepdims=axis == 1) / LARGEST, _LEAST)
    return np.round(array / scale).astype("int8"), scale.astype("float32")
