"""Encoders of texts, images and histories in ONNX, and the classifier of histories."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

from serving.portable.write._constants import Constants
from serving.portable.write._decoder import known_tokens
from serving.portable.write._graph import Graph, Value
from serving.portable.write._products import Products
from serving.portable.write._recurrent import Inputs, array, read_layers, read_sequence
from serving.portable.write.mechanisms._mechanism import BY_NAME
from training.config.schema import Config
from training.data.rules import MOST_NUMBER
from training.data.tokens.store import PAD_ID
from training.sources.events.source import SMALLEST


class Encoded(NamedTuple):
    """The result of an encoder.

    Attributes:
        memory: `(B, S, dim)`.
        mask: boolean `(B, 1, S)`.
        summary: a vector for the whole source, `(B, ·)`.
        states: the decoder's first states, each `(B, units)`; empty for a classifier.
    """

    memory: Value
    mask: Value
    summary: Value
    states: list[Value]


class Encoder:
    """Base class of the encoders; products have 32 or 8 `bits`.

    A subclass has `input`, which adds the graph's input. Calling the encoder with that input
    returns `Encoded`. If `attends` is false, the memory is only the summary.
    """

    def __init__(self, config: Config, model: keras.Model, bits: int) -> None:
        self.attends, self._bits = config.attention != "none", bits
        self._model: Any = model.get_layer("encoder")
        bridges = [layer for layer in self._model.layers if layer.name.startswith("bridge_")]
        bridges.sort(key=lambda layer: int(layer.name.removeprefix("bridge_")))
        self._bridges = [(array(layer.kernel), array(layer.bias)) for layer in bridges]

    def encoded(
        self, g: Graph, times: Products, memory: Value, mask: Value, summary: Value
    ) -> Encoded:
        """Return the memory, its mask and the first states: see `Encoded`."""
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
        self._bound = config.bound

    def input(self, g: Graph) -> Value:
        """Add the input `ids`, int64 `(B, S)`."""
        return g.input("ids", "int64", "B", "S")

    def limits(self, g: Graph, source: Value) -> Value:
        """Return the most tokens of a translation, float32 `(B, 1)`: factor · length + constant."""
        there = g.cast(~g("Equal", source, PAD_ID), "float32")
        length = g.reduce("ReduceSum", there, 1, keep=True)
        whole, hundredths = divmod(round(100 * self._bound[0]), 100)
        most = length * float(whole) + float(self._bound[1])
        return most + g("Floor", length * float(hundredths) / 100.0) if hundredths else most

    def __call__(self, g: Graph, times: Products, source: Value) -> Encoded:
        """Return the encoding of ids `(B, S)`."""
        if self._copies:
            source = known_tokens(g, source, len(self._embeddings))
        by_time = g("Transpose", source, perm=[1, 0])  # (S, B)
        there = ~g("Equal", by_time, PAD_ID)
        lengths = g.reduce("ReduceSum", g.cast(there, "int32"), 0)
        inputs = Inputs(by_time, self._embeddings, g.axis(there, 2), lengths)
        memory, summary = read_sequence(g, times, self._layers, inputs, self._bits)
        mask = g.axis(~g("Equal", source, PAD_ID), 1)
        return self.encoded(g, times, memory, mask, summary)


class ImageEncoder(Encoder):
    """Reads pixels, uint8 `(B, H, W, C)`, by convolutions in float32."""

    def __init__(self, config: Config, model: keras.Model, bits: int) -> None:
        super().__init__(config, model, bits)
        self._shape = self._model.input.shape[1:]
        self._longest = float(config.max_target_length)
        layers = self._model.layers
        norms = [each for each in layers if isinstance(each, keras.layers.BatchNormalization)]
        convolutions = [each for each in layers if isinstance(each, keras.layers.Conv2D)]
        self._convolutions = [_folded(*pair) for pair in zip(convolutions, norms, strict=True)]
        self._pools = [_pool_after(layers, norm) for norm in norms]
        positions = self._model.get_layer("positions")
        height, width = positions.output.shape[1:3]
        made = positions(np.zeros((1, height, width, 0), "float32"))
        self._positions = np.asarray(made).reshape(1, height * width, -1)

    def input(self, g: Graph) -> Value:
        """Add the input `pixels`, uint8 `(B, H, W, C)`."""
        return g.input("pixels", "uint8", "B", *self._shape)

    def limits(self, g: Graph, source: Value) -> Value:
        """Return the most tokens of a text, float32 `(B, 1)`: the run's `max_target_length`."""
        return g.expand(self._longest, g.size(source, 0), 1)

    def __call__(self, g: Graph, times: Products, source: Value) -> Encoded:
        """Return the encoding of pixels `(B, H, W, C)`, normalised image by image."""
        batch = g.size(source, 0)
        flat = g.reshape(g.cast(source, "float32"), 0, -1)
        flat = flat - g.reduce("ReduceMean", flat, 1, keep=True)
        deviation = g("Sqrt", g.reduce("ReduceMean", flat * flat, 1, keep=True))
        x = g.reshape(flat / g("Max", deviation, 1.0), 0, *self._shape)
        x = g("Transpose", x, perm=[0, 3, 1, 2])  # (B, C, H, W)
        for (kernel, bias), pool in zip(self._convolutions, self._pools, strict=True):
            # Padding "same": for an even kernel, Keras pads one more at the end.
            pads = [(size - 1) // 2 for size in kernel.shape[2:]]
            pads += [size // 2 for size in kernel.shape[2:]]
            x = g("Relu", g("Conv", x, kernel, bias, pads=pads))
            if pool:
                x = g("MaxPool", x, kernel_shape=pool, strides=pool)
        x = g("Transpose", x, perm=[0, 2, 3, 1])  # (B, H, W, C)
        _, places, dim = self._positions.shape
        x = g.reshape(x, 0, places, -1)  # (B, places, C)
        memory = g.concat([x, g.expand(self._positions, batch, places, dim)], axis=2)
        mask = g.expand(g.constant(np.ones((1, 1, 1), bool)), batch, 1, places)
        return self.encoded(g, times, memory, mask, g.reduce("ReduceMean", memory, 1))


def _folded(
    convolution: keras.layers.Conv2D, norm: keras.layers.BatchNormalization
) -> tuple[np.ndarray, np.ndarray]:
    """Return kernel `(out, in, h, w)` and bias `(out,)` of a convolution and its batch norm."""
    scale = array(norm.gamma) / np.sqrt(array(norm.moving_variance) + norm.epsilon)
    bias = array(norm.beta) - array(norm.moving_mean) * scale
    return (array(convolution.kernel) * scale).transpose(3, 2, 0, 1), bias


def _pool_after(layers: list[keras.Layer], norm: keras.Layer) -> list[int]:
    """Return the size of the pooling after a normalisation and its activation, [] without one."""
    after = layers[layers.index(norm) + 2]
    return list(after.pool_size) if isinstance(after, keras.layers.MaxPooling2D) else []


class EventEncoder(Encoder):
    """Reads the events of `_window`, float32 `(B, N, 1 + 2 · inputs)`."""

    def __init__(self, config: Config, model: keras.Model, bits: int) -> None:
        super().__init__(config, model, bits)
        self._inputs = self._model.input.shape[2] // 2
        features, event = map(self._model.get_layer, ("features", "event"))
        names = ("lowest", "highest", "mean", "deviation", "log", "time")
        self._statistics = {name: array(getattr(features, name)) for name in names}
        self._event = array(event.kernel), array(event.bias)
        self._layers = read_layers(self._model)

    def input(self, g: Graph) -> Value:
        """Add the input `events`, float32 `(B, T, 1 + inputs)`: a time, NaN in padding; numbers."""
        return g.input("events", "float32", "B", "T", 1 + self._inputs)

    def __call__(self, g: Graph, times: Products, source: Value) -> Encoded:
        """Return the encoding of events `(B, N, 1 + 2 · inputs)`."""
        by_time = g("Transpose", source, perm=[1, 0, 2])  # (N, B, 1 + 2 · inputs)
        there = ~g("IsNaN", g.slice(by_time, 0, 1, 2))  # (N, B, 1)
        x = g("Tanh", times.exact(self._features(g, by_time, there), *self._event))
        # Padding may stand between events, so lengths are None.
        memory, summary = read_sequence(
            g, times, self._layers, Inputs(x, None, there, None), self._bits
        )
        return self.encoded(g, times, memory, g("Transpose", there, perm=[1, 2, 0]), summary)

    def _features(self, g: Graph, events: Value, there: Value) -> Value:
        """Return features `(T, B, 3 · inputs + 3)`: see `training.sources.events.source`."""
        of = self._statistics
        moments, values, known = g.split(events, [1, self._inputs, self._inputs])
        missing = g.cast(g("IsNaN", values), "float32")
        seen = ~g("IsNaN", known)
        values = g("Where", seen, known, 1.0)
        values = g("Where", of["log"] > 0.5, g("Log", g("Max", values, SMALLEST)), values)
        values = g("Min", g("Max", values, of["lowest"]), of["highest"])
        values = g("Where", seen, (values - of["mean"]) / of["deviation"], 0.0)
        mean, deviation, gap = map(float, of["time"])
        moments = g("Where", there, g("Min", g("Max", moments, -MOST_NUMBER), MOST_NUMBER), 0.0)
        since = moments - g.concat([g.slice(moments, 0, 1, 0), g.slice(moments, 0, -1, 0)], axis=0)
        lowest = g.reduce("ReduceMin", moments, 0, keep=True)
        last = g.reduce("ReduceMax", g("Where", there, moments, lowest), 0, keep=True)
        of_time = [
            (moments - mean) / deviation,
            g("Log", g("Relu", since) / gap + 1.0),
            g("Log", g("Relu", last - moments) / gap + 1.0),
        ]
        features = g.concat([values, g.cast(seen, "float32"), missing, *of_time], axis=2)
        return g("Where", there, features, 0.0)


def _window(g: Graph, events: Value, most: int) -> Value:
    """Return the last `most` events, each with the last known number of every input.

    `events` is `(B, T, 1 + inputs)`, the result `(B, min(T, most), 1 + 2 · inputs)`: see
    `training.sources.events.source.last_events`.
    """

    def step(
        before: dict[str, Value], now: dict[str, Value]
    ) -> tuple[dict[str, Value], list[Value]]:
        missing = g("IsNaN", now["events"])
        known = g("Where", missing, before["known"], now["events"])
        return {"known": known}, [known]

    nothing = g.expand(np.float32(np.nan), g.size(events, 0), g.size(events, 2))
    steps = {"events": g("Transpose", events, perm=[1, 0, 2])}
    _, (known,) = g.scan({"known": nothing}, steps, step, ranks=[2, 2])
    known = g.slice(g("Transpose", known, perm=[1, 0, 2]), 1, 2**31, 2)  # (B, T, inputs)
    there = ~g("IsNaN", g.slice(events, 0, 1, 2))
    first = g("Max", g.reduce("ReduceSum", g.cast(there, "int64"), 1, keep=True) - most, 0)
    places = g.reshape(g.range(g("Min", g.size(events, 1), most)), -1, 1)  # (min(T, most), 1)
    # (B, T, 1 + 2 · inputs) at (B, min(T, most), 1)
    return g("GatherND", g.concat([events, known], axis=2), first + places, batch_dims=1)


def write_predictor(
    parts: list[tuple[Config, keras.Model]], folder: Path, bits: int
) -> dict[str, Any]:
    """Write `predictor.onnx` and its weights; return the dtypes and shapes of inputs and outputs.

    Args:
        parts: models of `training.model.seq2seq.build_classifier`, each with its configuration.
            Their probabilities and weights are averaged.
        folder: that the files are written to.
        bits: of products, 32 or 8.
    """
    constants = Constants()
    g = Graph(constants)
    times = Products(g, bits)
    encoders = [EventEncoder(*part, bits) for part in parts]
    source = _window(g, encoders[0].input(g), parts[0][0].max_events)
    heads = [
        _head(g, encoder, encoder(g, times, source), model)
        for encoder, (_, model) in zip(encoders, parts, strict=True)
    ]
    probabilities, weights = zip(*heads, strict=True)
    outputs = {"probability": g("Mean", *probabilities)}
    if all(encoder.attends for encoder in encoders):
        outputs["attention_weights"] = g("Mean", *weights)
    shapes = {"probability": ("B",), "attention_weights": ("B", "N")}
    written = g.save(folder / "predictor.onnx", outputs, **shapes)
    constants.save(folder)
    return {"predictor": written}


def _head(g: Graph, encoder: Encoder, encoded: Encoded, model: keras.Model) -> tuple[Value, Value]:
    """Return the probability `(B,)`, and the weights of events `(B, T)`."""
    pooled = encoded.summary
    weights = encoded.mask
    if encoder.attends:
        pooling = model.get_layer("pooling")
        kernel, bias, scale = map(array, (pooling.kernel, pooling.bias, pooling.scale))
        hidden = g("Tanh", encoded.memory @ kernel + bias)
        scores = g("Transpose", hidden @ scale[:, None], perm=[0, 2, 1])  # (B, 1, S)
        weights = BY_NAME[pooling.distribution](g, scores, encoded.mask)
        pooled = g.squeeze(weights @ encoded.memory, 1)
    output: Any = model.get_layer("output")
    logits = pooled @ array(output.kernel) + array(output.bias)
    return g("Sigmoid", g.squeeze(logits, 1)), g.squeeze(weights, 1)
