"""Encoders: what is attended to, and the decoder's first states."""

from __future__ import annotations

from typing import NamedTuple

import keras
import numpy as np

from serving.export.onnx.cells import array
from serving.export.onnx.graph import Graph, Value
from serving.export.onnx.products import Products
from serving.export.onnx.recurrent import Inputs, read_layers, read_sequence
from training.data.ids import PAD_ID


class Encoded(NamedTuple):
    """What an encoder gives.

    Attributes:
        memory: `(B, S, dim)`.
        mask: boolean `(B, 1, S)`.
        states: the decoder's first, each `(B, units)`.
    """

    memory: Value
    mask: Value
    states: list[Value]


class TextEncoder:
    """Reads token ids.

    Args:
        model: of `training.model`.
        attends: whether the decoder attends; if not, the memory is the summary alone.
        bits: of products, 32 or 8.
    """

    def __init__(self, model: keras.Model, attends: bool, bits: int) -> None:
        encoder = model.get_layer("encoder")
        self._embeddings = array(encoder.get_layer("source_embedding").embeddings)
        self._layers, self._attends, self._bits = read_layers(encoder), attends, bits
        bridges = [layer for layer in encoder.layers if layer.name.startswith("bridge_")]
        bridges.sort(key=lambda layer: int(layer.name.removeprefix("bridge_")))
        self._bridges = [(array(layer.kernel), array(layer.bias)) for layer in bridges]

    def __call__(self, g: Graph, times: Products, ids: Value) -> Encoded:
        """Read ids, int64 `(B, S)`, padded with 0."""
        by_time = g("Transpose", ids, perm=[1, 0])
        there = ~g("Equal", by_time, PAD_ID)
        lengths = g.over("ReduceSum", g.cast(there, "int32"), 0)
        inputs = Inputs(by_time, self._embeddings, g.axis(there, 2), lengths)
        memory, summary = read_sequence(g, times, self._layers, inputs, self._bits)
        mask = g.axis(~g("Equal", ids, PAD_ID), 1)
        if not self._attends:
            memory = g.axis(summary, 1)
            mask = g.expand(g.constant(np.ones((1, 1, 1), bool)), g.size(ids, 0), 1, 1)
        states = [g("Tanh", times.exact(summary, *bridge)) for bridge in self._bridges]
        return Encoded(memory, mask, states)
