"""The encoders: the memory and the decoder's first states, of all kinds; and the one of texts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import keras
import numpy as np

from serving.export.onnx.cells import array
from serving.export.onnx.copying import known_tokens
from serving.export.onnx.graph import Graph, Value
from serving.export.onnx.products import Products
from serving.export.onnx.recurrent import Inputs, read_layers, read_sequence
from training.config.schema import Config
from training.data.store import PAD_ID


class Encoded(NamedTuple):
    """The outputs of an encoder.

    Attributes:
        memory: `(B, S, dim)`.
        mask: boolean `(B, 1, S)`.
        summary: the whole source in one vector, `(B, ·)`.
        states: the decoder's first, each `(B, units)`; of a classifier none.
    """

    memory: Value
    mask: Value
    summary: Value
    states: list[Value]


class Encoder(ABC):
    """Base class of the encoders.

    Args:
        config: of the run.
        model: of `training.model`.
        bits: of products, 32 or 8.

    Attributes:
        attends: whether the memory is attended to; if not, it is the summary alone.
    """

    def __init__(self, config: Config, model: keras.Model, bits: int) -> None:
        self.attends, self._bits = config.attention != "none", bits
        self._model: Any = model.get_layer("encoder")
        bridges = [layer for layer in self._model.layers if layer.name.startswith("bridge_")]
        bridges.sort(key=lambda layer: int(layer.name.removeprefix("bridge_")))
        self._bridges = [(array(layer.kernel), array(layer.bias)) for layer in bridges]

    @abstractmethod
    def input(self, g: Graph) -> Value:
        """Add the graph's input."""

    @abstractmethod
    def __call__(self, g: Graph, times: Products, source: Value) -> Encoded:
        """Read a source."""

    def encoded(
        self, g: Graph, times: Products, memory: Value, mask: Value, summary: Value
    ) -> Encoded:
        """Return what is attended to, with the first states: see `Encoded`."""
        if not self.attends:
            memory = g.axis(summary, 1)
            mask = g.expand(g.constant(np.ones((1, 1, 1), bool)), g.size(summary, 0), 1, 1)
        states = [g("Tanh", times.exact(summary, *bridge)) for bridge in self._bridges]
        return Encoded(memory, mask, summary, states)


class TextEncoder(Encoder):
    """Reads token ids, int64 `(B, S)`, padded with 0."""

    def __init__(self, config: Config, model: keras.Model, bits: int) -> None:
        super().__init__(config, model, bits)
        self._embeddings = array(self._model.get_layer("source_embedding").embeddings)
        self._layers, self._copies = read_layers(self._model), config.copy

    def input(self, g: Graph) -> Value:
        """Add ids."""
        return g.input("ids", "int64", "B", "S")

    def limits(self, g: Graph, source: Value) -> Value:
        """Return the most tokens of a translation, float32 `(B, 1)`: twice the source's and 10."""
        there = g.cast(~g("Equal", source, PAD_ID), "float32")
        return g.over("ReduceSum", there, 1, keep=True) * 2.0 + 10.0

    def __call__(self, g: Graph, times: Products, source: Value) -> Encoded:
        """Read ids."""
        if self._copies:
            source = known_tokens(g, source, len(self._embeddings))
        by_time = g("Transpose", source, perm=[1, 0])
        there = ~g("Equal", by_time, PAD_ID)
        lengths = g.over("ReduceSum", g.cast(there, "int32"), 0)
        inputs = Inputs(by_time, self._embeddings, g.axis(there, 2), lengths)
        memory, summary = read_sequence(g, times, self._layers, inputs, self._bits)
        mask = g.axis(~g("Equal", source, PAD_ID), 1)
        return self.encoded(g, times, memory, mask, summary)
