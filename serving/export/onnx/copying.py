"""Copying: log-probabilities of a vocabulary that is extended for the source."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np

from keras_attention.layers.pointer import TINY
from serving.export.onnx.cells import array
from serving.export.onnx.graph import Graph, Value
from serving.export.onnx.mechanisms.mechanism import Shape, Values
from serving.export.onnx.products import Products
from training.data.store import UNK_ID


class Copying:
    """The mixture of `keras_attention.PointerGenerator`.

    Args:
        model: of `training.model`, which copies.
    """

    def __init__(self, model: keras.Model) -> None:
        words: Any = model.get_layer("source_words")
        mix: Any = model.get_layer("copy")
        self._table, self._size = np.asarray(array(words.words), "int64"), words.target_size
        self._switch = array(mix.kernel), array(mix.bias)

    def shapes(self) -> dict[str, Shape]:
        """Return by name the shapes, without the batch, of what is prepared."""
        return {"words": ("S",), "same": ("S", "S")}

    def prepare(self, g: Graph, source: Value) -> Values:
        """Return for ids `(B, S)` their words in the extended vocabulary; and which are alike."""
        places = g.range(g.size(source, 1))
        same = g("Equal", g.axis(source, 2), g.axis(source, 1))
        first = g.over("ReduceMin", g("Where", same, places, g.size(source, 1)), 2)
        shared = g.take(g.constant(self._table), known_tokens(g, source, len(self._table)))
        words = g("Where", shared >= 0, shared, first + self._size)
        same = g("Equal", g.axis(words, 2), g.axis(words, 1))
        return {"words": words, "same": g.cast(same, "float32")}

    def known(self, g: Graph, tokens: Value) -> Value:
        """Return tokens that have an embedding."""
        return known_tokens(g, tokens, self._size)

    def mix(
        self, g: Graph, times: Products, output: Value, log_probs: Value, weights: Value, of: Values
    ) -> Value:
        """Return log-probabilities `(B·n, V + S)`: see Eq. 9 of See et al. 2017.

        Args:
            g: the graph.
            times: for the product.
            output: of the decoder, `(B·n, dim)`.
            log_probs: of the vocabulary, `(B·n, V)`.
            weights: `(B, n, S)`.
            of: what `prepare` gave.
        """
        kernel, bias = self._switch
        switch = times.exact(output, kernel, bias)
        generate, copy = -g("Softplus", -switch), -g("Softplus", switch)
        length = g.size(of["words"], 1)
        beyond = g.expand(copy + math.log(TINY), 1, length)
        generated = g.concat([log_probs + generate, beyond], axis=1)
        words = g.reshape(g.expand(g.axis(of["words"], 1), 1, g.size(weights, 1), 1), -1, length)
        at_words = g("GatherElements", generated, words, axis=1)
        looked = g.reshape(weights @ of["same"], -1, length)
        # Scaled by the greater of both; below TINY the logarithm goes on as a line.
        highest = g("Max", at_words, copy + g("Log", g("Max", looked, TINY)))
        total = g("Exp", at_words - highest) + looked * g("Exp", copy - highest)
        safe = g("Max", total, 1.0)
        mixed = highest + g("Log", safe) + (total - safe)
        # A word that stands at several places has the same number at each.
        return g("ScatterElements", generated, words, mixed, axis=1)


def known_tokens(g: Graph, ids: Value, size: int) -> Value:
    """Return ids of a vocabulary: unknown ones for words that stand in a source alone."""
    return g("Where", ids < size, ids, UNK_ID)
