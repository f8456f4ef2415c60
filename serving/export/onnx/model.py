"""A model, or an ensemble of several, as the graphs see it: what it encodes, and one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import keras
import numpy as np

from serving.export.onnx.aligned import Aligned
from serving.export.onnx.copying import Copying
from serving.export.onnx.decoder import Decoder
from serving.export.onnx.encoder import TextEncoder
from serving.export.onnx.graph import Graph, Value
from serving.export.onnx.images import ImageEncoder
from serving.export.onnx.mechanisms.mechanism import Shape, Values
from serving.export.onnx.products import Products
from serving.export.onnx.search import part_of
from training.config.schema import Config

T = TypeVar("T")
ENCODERS: dict[str, type[TextEncoder] | type[ImageEncoder]] = {
    "text": TextEncoder,
    "image": ImageEncoder,
}


class Model:
    """A model of `training.model.seq2seq.build_seq2seq`.

    Args:
        config: of the run.
        model: its weights.
        bits: of products, 32 or 8.
        tables: see `Products`.
        prefix: of the names of what a step takes, for an ensemble's further models.
    """

    def __init__(
        self, config: Config, model: keras.Model, bits: int, tables: bool, prefix: str
    ) -> None:
        self.encoder = ENCODERS[config.source](config, model, bits)
        aligns = config.attention == "hard_monotonic"
        self.decoder: Aligned | Decoder = Aligned(model) if aligns else Decoder(model)
        self.copying = Copying(model) if config.copy else None
        self._bits, self._tables, self._prefix = bits, tables, prefix

    def shapes(self) -> dict[str, Shape]:
        """Return by name the shapes, without the batch, of what is prepared and carried."""
        copied = self.copying.shapes() if self.copying else {}
        return self._named({**self.decoder.shapes(), **copied})

    def encode(self, g: Graph, source: Value) -> tuple[Values, Values]:
        """Return what depends on the memory alone, and the first state, `(B, …)` by name."""
        encoded = self.encoder(g, Products(g, self._bits, self._tables), source)
        memory = self.decoder.prepare(g, encoded.memory, encoded.mask)
        if self.copying:
            memory |= self.copying.prepare(g, source)
        state = self.decoder.start(g, encoded.memory, encoded.states)
        return self._named(memory), self._named(state)

    def step(
        self, g: Graph, tokens: Value, memory: Values, state: Values
    ) -> tuple[Value, Value, Values]:
        """Return log-probabilities `(B·n, V)`, weights `(B, n, S)` and the next state.

        V is filled up to a multiple of `part_of` the vocabulary, with what is never said. That of a
        model which copies is extended for the source.
        """
        times = Products(g, self._bits, self._tables)
        memory, state = self._own(memory), self._own(state)
        if self.copying:
            tokens = self.copying.known(g, tokens)
        made = self.decoder.step(g, times, tokens, memory, state)
        part = 1 if self.copying else part_of(self.decoder.vocabulary)
        log_probs = self.decoder.log_probs(g, times, made.output, part)
        if self.copying:
            mixed = made.output, log_probs, made.weights, memory
            log_probs = self.copying.mix(g, times, *mixed)
        return log_probs, made.weights, self._named(made.state)

    def _named(self, values: dict[str, T]) -> dict[str, T]:
        return {f"{self._prefix}{name}": x for name, x in values.items()}

    def _own(self, values: Values) -> Values:
        cut = len(self._prefix)
        return {k[cut:]: x for k, x in values.items() if k.startswith(self._prefix)}


class Ensemble:
    """Models whose probabilities and attention weights are averaged; one stays as it is.

    Args:
        parts: models of the same vocabularies, each with its configuration.
        bits: of products, 32 or 8.
        tables: see `Products`.
    """

    def __init__(
        self, parts: Sequence[tuple[Config, keras.Model]], bits: int, tables: bool
    ) -> None:
        self._models = [
            Model(*part, bits, tables, f"model_{number}_" if number else "")
            for number, part in enumerate(parts)
        ]
        first = self._models[0]
        self.encoder, self.vocabulary = first.encoder, first.decoder.vocabulary
        self.copies = first.copying is not None

    def shapes(self) -> dict[str, Shape]:
        """See `Model`."""
        return {name: shape for each in self._models for name, shape in each.shapes().items()}

    def encode(self, g: Graph, source: Value) -> tuple[Values, Values]:
        """See `Model`."""
        memories, states = zip(*(each.encode(g, source) for each in self._models), strict=True)
        return _joined(memories), _joined(states)

    def step(
        self, g: Graph, tokens: Value, memory: Values, state: Values
    ) -> tuple[Value, Value, Values]:
        """See `Model`."""
        steps = [each.step(g, tokens, memory, state) for each in self._models]
        if len(steps) == 1:
            return steps[0]
        log_probs, weights, states = zip(*steps, strict=True)
        together = g.concat([g.axis(x, 0) for x in log_probs], axis=0)
        mean = g.over("ReduceLogSumExp", together, 0) - float(np.log(len(steps)))
        return mean, g("Mean", *weights), _joined(states)


def _joined(values: Sequence[Values]) -> Values:
    return {name: x for each in values for name, x in each.items()}
