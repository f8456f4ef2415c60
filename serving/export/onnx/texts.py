"""The encoder of texts."""

from __future__ import annotations

import keras

from serving.export.onnx.cells import array
from serving.export.onnx.copying import known_tokens
from serving.export.onnx.encoder import Encoded, Encoder
from serving.export.onnx.graph import Graph, Value
from serving.export.onnx.products import Products
from serving.export.onnx.recurrent import Inputs, read_layers, read_sequence
from training.config.schema import Config
from training.data.ids import PAD_ID


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
