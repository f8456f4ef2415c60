"""The encoder of histories, and the head that says how probable an outcome is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras

from serving.export.onnx.cells import array
from serving.export.onnx.constants import Constants
from serving.export.onnx.distributions import BY_NAME
from serving.export.onnx.encoder import Encoded, Encoder
from serving.export.onnx.graph import Graph, Value
from serving.export.onnx.products import Products
from serving.export.onnx.recurrent import Inputs, read_layers, read_sequence
from training.config.schema import Config
from training.sources.events.source import SMALLEST


class EventEncoder(Encoder):
    """Reads events, float32 `(B, T, 1 + inputs)`: times, NaN past the end, and numbers."""

    def __init__(self, config: Config, model: keras.Model, bits: int) -> None:
        super().__init__(config, model, bits)
        self._width = self._model.input.shape[2]
        features, event = map(self._model.get_layer, ("features", "event"))
        names = ("lowest", "highest", "mean", "deviation", "log", "time")
        self._statistics = {name: array(getattr(features, name)) for name in names}
        self._event = array(event.kernel), array(event.bias)
        self._layers = read_layers(self._model)

    def input(self, g: Graph) -> Value:
        """Add events."""
        return g.input("events", "float32", "B", "T", self._width)

    def __call__(self, g: Graph, times: Products, source: Value) -> Encoded:
        """Read events."""
        by_time = g("Transpose", source, perm=[1, 0, 2])
        there = ~g("IsNaN", g.slice(by_time, 0, 1, 2), dtype="bool")
        x = g("Tanh", times.exact(self._features(g, by_time, there), *self._event))
        # Events may be missing anywhere, so there are no lengths.
        memory, summary = read_sequence(
            g, times, self._layers, Inputs(x, None, there, None), self._bits
        )
        return self.encoded(g, times, memory, g("Transpose", there, perm=[1, 2, 0]), summary)

    def _features(self, g: Graph, events: Value, there: Value) -> Value:
        """Return features `(T, B, 3 · inputs + 3)`: see `training.sources.events.source`."""
        of = self._statistics
        moments, values = g.split(events, [1, self._width - 1])
        seen = ~g("IsNaN", values, dtype="bool")
        values = g("Where", seen, values, 1.0)
        values = g("Where", of["log"] > 0.5, g("Log", g("Max", values, SMALLEST)), values)
        values = g("Min", g("Max", values, of["lowest"]), of["highest"])
        values = g("Where", seen, (values - of["mean"]) / of["deviation"], 0.0)
        present = g.cast(seen, "float32")
        missing = 1.0 - present
        values, present = _last_known(g, values, present)
        mean, deviation, gap = map(float, of["time"])
        moments = g("Where", there, moments, 0.0)
        since = moments - g.concat([g.slice(moments, 0, 1, 0), g.slice(moments, 0, -1, 0)], axis=0)
        lowest = g.over("ReduceMin", moments, 0, keep=True)
        last = g.over("ReduceMax", g("Where", there, moments, lowest), 0, keep=True)
        of_time = [
            (moments - mean) / deviation,
            g("Log", g("Relu", since) / gap + 1.0),
            g("Log", g("Relu", last - moments) / gap + 1.0),
        ]
        features = g.concat([values, present, missing, *of_time], axis=2)
        return g("Where", there, features, 0.0)


def _last_known(g: Graph, values: Value, known: Value) -> tuple[Value, Value]:
    """Return the last known of values `(T, B, F)` up to each event, and 1 where there is one."""

    def step(
        before: dict[str, Value], now: dict[str, Value]
    ) -> tuple[dict[str, Value], list[Value]]:
        seen = g.cast(now["known"], "bool")
        new = {
            "value": g("Where", seen, now["values"], before["value"]),
            "any": g("Max", before["any"], now["known"]),
        }
        return new, list(new.values())

    nothing = g.expand(0.0, g.size(values, 1), g.size(values, 2))
    start = {"value": nothing, "any": nothing}
    _, filled = g.scan(start, {"values": values, "known": known}, step, ranks=[2] * 4)
    return filled[0], filled[1]


def write_predictor(
    parts: list[tuple[Config, keras.Model]], folder: Path, bits: int
) -> dict[str, Any]:
    """Write `predictor.onnx` and its weights.

    Args:
        parts: models of `training.model.seq2seq.build_classifier`, whose probabilities and
            weights are averaged, each with its configuration.
        folder: where to.
        bits: of the encoder's products, 32 or 8.

    Returns:
        The dtypes and shapes of its inputs and outputs.
    """
    constants = Constants()
    g = Graph(constants)
    times = Products(g, bits)
    encoders = [EventEncoder(*part, bits) for part in parts]
    source = encoders[0].input(g)
    heads = [
        _head(g, encoder, encoder(g, times, source), model)
        for encoder, (_, model) in zip(encoders, parts, strict=True)
    ]
    probabilities, weights = zip(*heads, strict=True)
    outputs: dict[str, tuple[Value, tuple[str | int, ...]]] = {
        "probability": (_mean(g, probabilities), ("B",))
    }
    if all(encoder.attends for encoder in encoders):
        outputs["attention_weights"] = (_mean(g, weights), ("B", "T"))
    written = g.save(folder / "predictor.onnx", outputs)
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
        scores = g("Transpose", hidden @ scale[:, None], perm=[0, 2, 1])
        weights = BY_NAME[pooling.distribution](g, scores, encoded.mask)
        pooled = g.squeeze(weights @ encoded.memory, 1)
    output: Any = model.get_layer("output")
    logits = pooled @ array(output.kernel) + array(output.bias)
    return g("Sigmoid", g.squeeze(logits, 1)), g.squeeze(weights, 1)


def _mean(g: Graph, values: tuple[Value, ...]) -> Value:
    return values[0] if len(values) == 1 else g("Mean", *values)
