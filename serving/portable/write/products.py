"""Products with constant kernels, in float32 or in eight bits."""

from __future__ import annotations

import numpy as np

from serving.portable.write.graph import Graph, Value

LARGEST = 127  # of a weight in eight bits
ZERO = 128  # of activations: uint8 times int8 has fast kernels, int8 times int8 has none
_LEAST = 1e-9  # scale of a row of zeros
TABLE = 2**25  # the most numbers that a vocabulary's products may be


class Products:
    """Products with kernels `(m, n)` of rows `(…, m)`, in 32 or in 8 bits.

    In eight bits a kernel has a scale for each column. An activation has a scale for each row, so
    that no row depends on another, or the same for all where numbers are known to be within -1 and
    1. `tables` keep the products of a vocabulary: faster, and several times as large.
    """

    def __init__(self, graph: Graph, bits: int, tables: bool = True) -> None:
        self._g, self._bits, self._tables = graph, bits, tables
        self._quantized: dict[tuple[str, bool], tuple[Value, Value | None]] = {}

    def __call__(
        self, x: Value, kernel: np.ndarray, bias: np.ndarray | None = None, bounded: bool = False
    ) -> Value:
        """Return the product of `x` `(…, m)` with a kernel, and a bias `(n,)` or none added to it.

        `bounded` says that all of `x` is within -1 and 1.
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
        """Return a product in float32, of `x` `(…, m)`."""
        y = x @ np.asarray(kernel, "float32")
        return y if bias is None else y + np.asarray(bias, "float32")

    def look_up(self, table: np.ndarray, rows: Value) -> Value:
        """Return rows `(…, n)` of a table `(V, n)`, which in eight bits has a scale for each."""
        g = self._g
        if self._bits == 32:
            return g.take(np.asarray(table, "float32"), rows)
        whole, scale = quantized(table, 1)
        return g.cast(g.take(whole, rows), "float32") * g.take(scale, rows)

    def embedded(
        self, embeddings: np.ndarray, tokens: Value, kernel: np.ndarray, bias: np.ndarray
    ) -> Value:
        """Return the products of tokens' embeddings `(V, m)` with a kernel."""
        if self._tables and len(embeddings) * kernel.shape[1] <= TABLE:
            return self.look_up(embeddings @ kernel + bias, tokens)
        return self(self.look_up(embeddings, tokens), kernel, bias)

    def _rows(self, x: Value, bounded: bool) -> tuple[Value, Value | None]:
        """Return rows as uint8 around `ZERO`, and each row's scale; None where it is fixed."""
        key = (x.name, bounded)
        if key not in self._quantized:
            g, zero = self._g, self._g.constant(ZERO, "uint8")
            if bounded:
                fixed = g.constant(1 / LARGEST, "float32")
                self._quantized[key] = g("QuantizeLinear", x, fixed, zero), None
            else:
                most = g.over("ReduceMax", g("Abs", x), -1, keep=True)
                scale = g("Max", most * (1 / LARGEST), _LEAST)
                unit = g.constant(1, "float32")
                self._quantized[key] = g("QuantizeLinear", x / scale, unit, zero), scale
        return self._quantized[key]


def quantized(array: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Return int8 numbers and the float32 scale along an axis that they are to be multiplied by.

    A scale for the columns of a kernel (axis 0) is `(n,)`, for the rows of a table (axis 1)
    `(V, 1)`.
    """
    scale = np.maximum(np.abs(array).max(axis, keepdims=axis == 1) / LARGEST, _LEAST)
    return np.round(array / scale).astype("int8"), scale.astype("float32")
