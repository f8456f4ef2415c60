"""Decoders in ONNX: attention, cells, readout, output; copying; hard monotonic alignment.

In shapes, B counts sentences, n the rows (hypotheses) of each sentence, S places of the source.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_attention.layers.pointer import TINY
from serving.portable.write._graph import Graph, Value, Values
from serving.portable.write._products import Products
from serving.portable.write._recurrent import advance, array, read_cell
from serving.portable.write.mechanisms import make
from serving.portable.write.mechanisms._mechanism import Rows
from training.data.tokens.store import UNK_ID
from training.model.aligned import FARTHEST, NEVER
from training.model.aligned import TINY as LEAST


class Copying:
    """Mixes generating and copying, as `keras_attention.PointerGenerator` does.

    `size` is the number of target tokens that have an embedding.
    """

    def __init__(self, model: keras.Model) -> None:
        words: Any = model.get_layer("source_words")
        mix: Any = model.get_layer("copy")
        self._table, self.size = np.asarray(array(words.words), "int64"), words.target_size
        self._switch = array(mix.kernel), array(mix.bias)

    def prepare(self, g: Graph, source: Value) -> Values:
        """Return the extended vocabulary's id of each source token, and which tokens are equal.

        From ids `(B, S)`: `words` is int64 `(B, S)`, `same` float32 `(B, S, S)`.
        """
        places = g.range(g.size(source, 1))
        same = g("Equal", g.axis(source, 2), g.axis(source, 1))  # (B, S, S)
        first = g.reduce("ReduceMin", g("Where", same, places, g.size(source, 1)), 2)  # (B, S)
        shared = g.gather(self._table, known_tokens(g, source, len(self._table)))
        words = g("Where", shared >= 0, shared, first + self.size)
        same = g("Equal", g.axis(words, 2), g.axis(words, 1))
        return {"words": words, "same": g.cast(same, "float32")}

    def mix(
        self, g: Graph, times: Products, output: Value, log_probs: Value, weights: Value, of: Values
    ) -> Value:
        """Return log-probabilities `(B·n, V + S)` of the extended vocabulary.

        See Eq. 9 of See et al. 2017.

        Args:
            g: the graph.
            times: multiplies rows by kernels.
            output: of the decoder, `(B·n, dim)`.
            log_probs: of the vocabulary, `(B·n, V)`.
            weights: of the attention, `(B, n, S)`.
            of: the result of `prepare`.
        """
        kernel, bias = self._switch
        switch = times.exact(output, kernel, bias)
        generate, copy = -g("Softplus", -switch), -g("Softplus", switch)
        length = g.size(of["words"], 1)
        beyond = g.expand(copy + math.log(TINY), 1, length)
        generated = g.concat([log_probs + generate, beyond], axis=1)
        # (B, S) to (B·n, S)
        words = g.reshape(g.expand(g.axis(of["words"], 1), 1, g.size(weights, 1), 1), -1, length)
        at_words = g("GatherElements", generated, words, axis=1)
        looked = g.reshape(weights @ of["same"], -1, length)  # (B·n, S)
        # Both terms are scaled by the greater one; below TINY, a line continues the logarithm.
        highest = g("Max", at_words, copy + g("Log", g("Max", looked, TINY)))
        total = g("Exp", at_words - highest) + looked * g("Exp", copy - highest)
        safe = g("Max", total, 1.0)
        mixed = highest + g("Log", safe) + (total - safe)
        # A word at several places of the source has the same value at each place.
        return g("ScatterElements", generated, words, mixed, axis=1)


def known_tokens(g: Graph, ids: Value, size: int) -> Value:
    """Return ids with UNK in place of ids from `size` on, which stand for words of a source."""
    return g("Where", ids < size, ids, UNK_ID)


class Step(NamedTuple):
    """A step's output `(B·n, readout_units)`, weights `(B, n, S)`, and next state by name.

    The weights of several heads are averaged.
    """

    output: Value
    weights: Value
    state: Values


class Decoder:
    """The decoder of a model with its embeddings and its output layer.

    A context is a weighted average of the memory, so the product of a context and a kernel is the
    same average of the memory's products. `prepare` therefore multiplies the memory by the kernels
    of contexts once for all steps. `vocabulary` is the number of tokens.
    """

    def __init__(self, model: keras.Model) -> None:
        layer = model.get_layer("decoder")
        self._cells = [read_cell(cell) for cell in getattr(layer.cell, "cells", [layer.cell])]
        self._embeddings = array(model.get_layer("target_embedding").embeddings)
        self.vocabulary, dim = self._embeddings.shape
        self.output_size, size = layer.output_size, layer.context_size
        self._bahdanau, self._feeds = layer.order == "bahdanau", layer.input_feeding
        self._deep = layer.readout == "maxout"
        units = self._cells[-1].units
        self._attention = make(layer.attention, units, size)
        self._gate = (array(layer.gate_kernel), array(layer.gate_bias)) if layer.gate else None

        first, readout = self._cells[0], array(layer.output_kernel)
        # The first cell's kernel has the token's rows, then the last output's, then the context's.
        end = dim + (self.output_size if self._feeds else 0)
        of_token, bias = first.kernel[:dim], first.kernel_bias
        self._of_fed = first.kernel[dim:end]
        of_context = {"gates": first.kernel[end:]} if self._bahdanau else {}
        of_context["readout"] = readout[:size]
        self._of_output = readout[size : size + units]
        self._token_parts = [of_token.shape[1]]
        if self._deep:  # a deep readout also reads the token
            rest = readout[size + units :]
            of_token = np.concatenate([of_token, rest], 1)
            bias = np.concatenate([bias, np.zeros(rest.shape[1], "float32")])
            self._token_parts.append(rest.shape[1])
        self._of_token = of_token, bias
        self._of_context = np.concatenate(list(of_context.values()), 1)
        self._context_parts = {name: kernel.shape[1] for name, kernel in of_context.items()}
        self._output = _output(model, self._embeddings)

    def prepare(self, g: Graph, memory: Value, mask: Value) -> Values:
        """Return the tensors that every step needs from the memory, `(B, …)` by name.

        `memory` is `(B, S, dim)`, `mask` boolean `(B, 1, S)`.
        """
        heads = self._attention.heads
        if heads == 1:
            values = memory @ self._of_context  # (B, S, ·)
        else:  # each head averages its own part of the dimensions
            kernels = self._of_context.reshape(heads, -1, self._of_context.shape[1])
            apart = self._attention.split_keys(g, memory, self._attention.memory_dim)
            values = apart @ kernels  # (B, heads, S, ·)
        return {"values": values, "mask": mask, **self._attention.prepare(g, memory, mask)}

    def start(self, g: Graph, memory: Value, states: list[Value]) -> Values:
        """Return the state before the first step, `(B, …)` by name; `states` are `(B, units)`."""
        state = {f"state_{number}": x for number, x in enumerate(states)}
        if self._feeds:
            state["output"] = g.expand(0.0, g.size(memory, 0), self.output_size)
        return {**state, **self._attention.start(g, memory)}

    def step(self, g: Graph, times: Products, tokens: Value, memory: Values, state: Values) -> Step:
        """Return the step that reads tokens.

        Args:
            g: the graph.
            times: multiplies rows by kernels.
            tokens: ids `(B·n,)`.
            memory: the result of `prepare`, `(B, …)` by name.
            state: of `start` or of the step before, `(B·n, …)` by name.
        """
        rows = Rows(g, g.size(memory["mask"], 0))
        of_tokens = times.embedded(self._embeddings, tokens, *self._of_token)
        gates, *of_token = g.split(of_tokens, self._token_parts)  # (B·n, ·) each
        if self._feeds:
            gates = gates + times(state["output"], self._of_fed, bounded=not self._deep)
        states = [[state[name] for name in names] for names in self._names()]
        if not self._bahdanau:
            states = self._advance(g, times, gates, states)
        context, weights, looked = self._look(g, times, states[-1][0], memory, state, rows)
        if self._bahdanau:
            states = self._advance(g, times, gates + context["gates"], states)
        hidden = context["readout"] + times(states[-1][0], self._of_output, bounded=True)
        if self._deep:  # maxout: the greater number of each pair
            pairs = g.reshape(hidden + of_token[0], 0, self.output_size, 2)  # (B·n, output_size, 2)
            output = g.reduce("ReduceMax", pairs, 2)
        else:
            output = g("Tanh", hidden)
        names = [name for group in self._names() for name in group]
        new = dict(zip(names, (x for each in states for x in each), strict=True))
        if self._feeds:
            new["output"] = output
        return Step(output, weights, {**new, **looked})

    def log_probs(self, g: Graph, times: Products, output: Value, part: int) -> Value:
        """Return log-probabilities `(B·n, V)` of the next token from a step's `output`.

        V is padded to a multiple of `part` with tokens of probability 0.
        """
        kernel, bias = self._output
        missing = -kernel.shape[1] % part
        if missing:
            never = np.full(missing, -np.inf, "float32")
            kernel = np.pad(kernel, [(0, 0), (0, missing)])
            bias = np.zeros(self.vocabulary, "float32") if bias is None else bias
            bias = np.concatenate([bias, never])
        return g("LogSoftmax", times(output, kernel, bias, bounded=not self._deep), axis=-1)

    def _names(self) -> list[list[str]]:
        """Return the names of the states of each cell."""
        number, names = 0, []
        for cell in self._cells:
            names.append([f"state_{number + i}" for i in range(cell.states)])
            number += cell.states
        return names

    def _look(
        self, g: Graph, times: Products, query: Value, memory: Values, state: Values, rows: Rows
    ) -> tuple[Values, Value, Values]:
        """Return the context's products by name, the weights, and the mechanism's next state.

        `query` is `(B·n, units)`. The products are `(B·n, ·)`, the weights `(B, n, S)`.
        """
        weights, looked = self._attention.weigh(g, times, query, memory, state, rows)
        context = weights @ memory["values"]  # (B, [heads,] n, ·)
        if self._attention.heads > 1:
            context = g.reduce("ReduceSum", context, 1)
            weights = g.reduce("ReduceMean", weights, 1)
        context = rows.together(context, sum(self._context_parts.values()))  # (B·n, ·)
        if self._gate:
            kernel, bias = self._gate
            context = context * g("Sigmoid", times.exact(query, kernel, bias))
        parts = g.split(context, list(self._context_parts.values()))
        return dict(zip(self._context_parts, parts, strict=True)), weights, looked

    def _advance(
        self, g: Graph, times: Products, gates: Value, states: list[list[Value]]
    ) -> list[list[Value]]:
        """Return the next states of the cells; each cell reads the output of the cell below."""
        new: list[list[Value]] = []
        for cell, old in zip(self._cells, states, strict=True):
            if new:
                gates = times(new[-1][0], cell.kernel, cell.kernel_bias, bounded=True)
            of_state = times(old[0], cell.recurrent, cell.recurrent_bias, bounded=True)
            new.append(advance(g, cell, gates, of_state, old))
        return new


def _output(model: keras.Model, embeddings: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the output layer's kernel `(dim, V)` and bias `(V,)`, None with tied embeddings."""
    if "output" not in {layer.name for layer in model.layers}:
        return embeddings.T, None
    layer: Any = model.get_layer("output")
    return array(layer.kernel), array(layer.bias)


class Aligned:
    """An `AlignedDecoder`, with the interface of `Decoder`."""

    def __init__(self, model: keras.Model) -> None:
        layer = model.get_layer("decoder")
        self._cell = read_cell(layer.cell)
        self._embeddings = array(layer.embedding.embeddings)
        self.vocabulary, _ = self._embeddings.shape
        self._query, self._of_state = array(layer.query.kernel), array(layer.of_state.kernel)
        self._key, self._of_memory, self._output = (
            [array(weight) for weight in dense.weights]
            for dense in (layer.key, layer.of_memory, layer.output_layer)
        )
        self._score = array(layer.score.kernel)
        # The last weight is for every move to the left.
        self._ways = np.append(array(layer.ways), np.float32(NEVER))

    def prepare(self, g: Graph, memory: Value, mask: Value) -> Values:
        keys, values = (memory @ kernel + bias for kernel, bias in (self._key, self._of_memory))
        return {"keys": keys, "values": values, "mask": mask}

    def start(self, g: Graph, memory: Value, states: list[Value]) -> Values:
        """See `Decoder`; `said` is the log-probability of each place and token, `(B, S, V)`."""
        places = g.axis(g.range(g.size(memory, 1)), 1)
        first = g("Where", g("Equal", places, 0), 0.0, NEVER)
        said = g.expand(first, g.size(memory, 0), g.size(memory, 1), self.vocabulary)
        return {"said": said, **{f"state_{number}": x for number, x in enumerate(states)}}

    def step(self, g: Graph, times: Products, tokens: Value, memory: Values, state: Values) -> Step:
        """See `Decoder`; the step's output is log-probabilities `(B·n, V)`."""
        rows = Rows(g, g.size(memory["mask"], 0))
        names = [f"state_{number}" for number in range(self._cell.states)]
        states = [state[name] for name in names]
        cell = self._cell
        gates = times.embedded(self._embeddings, tokens, cell.kernel, cell.kernel_bias)
        of_state = times(states[0], cell.recurrent, cell.recurrent_bias, bounded=True)
        states = advance(g, cell, gates, of_state, states)

        length = g.size(memory["mask"], 2)
        token = g("Equal", g.axis(tokens, 1), np.arange(self.vocabulary))
        chosen = state["said"] * g.axis(g.cast(token, "float32"), 1)  # (B·n, S, V)
        # (B·n, S) to (B, n, S)
        was = rows.apart(g("Softmax", g.reduce("ReduceSum", chosen, 2), axis=-1), length)
        moves = self._moves(g, times, states[0], memory, rows)
        places = g.squeeze(g.axis(was, 2) @ moves, 2)  # (B, n, 1, S) by (B, n, S, S): (B, n, S)
        log_places = g("Log", g("Max", places, LEAST))
        vector = rows.apart(times(states[0], self._of_state, bounded=True), self._of_state.shape[1])
        vector = g("Tanh", g.axis(vector, 2) + g.axis(memory["values"], 1))  # (B, n, S, ·)
        kernel, bias = self._output
        spoken = g("LogSoftmax", times(vector, kernel, bias, bounded=True), axis=-1)
        # (B, n, S, V) to (B·n, S, V)
        said = rows.together(g.axis(log_places, 3) + spoken, length, self.vocabulary)
        new = dict(zip(names, states, strict=True))
        return Step(_log_sum_exp(g, said, 1), places, {**new, "said": said})

    def log_probs(self, g: Graph, times: Products, output: Value, part: int) -> Value:
        """See `Decoder`; return `output`, the log-probabilities, padded to a multiple of `part`."""
        missing = -self.vocabulary % part
        if not missing:
            return output
        never = g.expand(-np.inf, g.size(output, 0), missing)
        return g.concat([output, never], axis=1)

    def _moves(self, g: Graph, times: Products, query: Value, memory: Values, rows: Rows) -> Value:
        """Return the probability of a move from each place to each place, `(B, n, S, S)`."""
        asked = rows.apart(times(query, self._query, bounded=True), self._query.shape[1])
        hidden = g("Tanh", g.axis(asked, 2) + g.axis(memory["keys"], 1))  # (B, n, S, units)
        scores = g("Where", memory["mask"], g.squeeze(hidden @ self._score, -1), NEVER)
        place = g.range(g.size(memory["mask"], 2))
        way = g.axis(place, 0) - g.axis(place, 1)  # (S, S), the width of each move
        way = g("Where", way > FARTHEST, FARTHEST, way)
        way = g("Where", way >= 0, way, FARTHEST + 1)
        weights = g.gather(self._ways, way)  # (S, S)
        return g("Softmax", g.axis(scores, 2) + weights, axis=-1)


def _log_sum_exp(g: Graph, x: Value, axis: int) -> Value:
    """Return ReduceLogSumExp; an inner axis takes a fifth of its time (onnxruntime 1.32)."""
    most = g.reduce("ReduceMax", x, axis, keep=True)
    return g("Log", g.reduce("ReduceSum", g("Exp", x - most), axis)) + g.squeeze(most, axis)
