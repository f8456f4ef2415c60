"""The decoders: attention, cells, readout, output; copying; and the decoder of alignments."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_attention.layers.pointer import TINY
from serving.portable.write.graph import Graph, Value, Values
from serving.portable.write.mechanisms import make
from serving.portable.write.mechanisms.mechanism import Rows
from serving.portable.write.products import Products
from serving.portable.write.recurrent import advance, array, read_cell
from training.data.store import UNK_ID
from training.model.aligned import FARTHEST, NEVER
from training.model.aligned import TINY as LEAST


class Copying:
    """The mixture of `keras_attention.PointerGenerator`, of a model that copies.

    `size` is the number of tokens that have an embedding.
    """

    def __init__(self, model: keras.Model) -> None:
        words: Any = model.get_layer("source_words")
        mix: Any = model.get_layer("copy")
        self._table, self.size = np.asarray(array(words.words), "int64"), words.target_size
        self._switch = array(mix.kernel), array(mix.bias)

    def prepare(self, g: Graph, source: Value) -> Values:
        """Return for ids `(B, S)` their words in the extended vocabulary; and which are alike."""
        places = g.range(g.size(source, 1))
        same = g("Equal", g.axis(source, 2), g.axis(source, 1))
        first = g.over("ReduceMin", g("Where", same, places, g.size(source, 1)), 2)
        shared = g.take(self._table, known_tokens(g, source, len(self._table)))
        words = g("Where", shared >= 0, shared, first + self.size)
        same = g("Equal", g.axis(words, 2), g.axis(words, 1))
        return {"words": words, "same": g.cast(same, "float32")}

    def mix(
        self, g: Graph, times: Products, output: Value, log_probs: Value, weights: Value, of: Values
    ) -> Value:
        """Return log-probabilities `(B·n, V + S)`: see Eq. 9 of See et al. 2017.

        `output` of the decoder is `(B·n, dim)`, `log_probs` of the vocabulary `(B·n, V)`, `weights`
        `(B, n, S)`, and `of` is the result of `prepare`.
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


class Step(NamedTuple):
    """Output `(B·n, readout_units)`, weights `(B, n, S)`, and the next state by name.

    The weights of several heads are their mean.
    """

    output: Value
    weights: Value
    state: Values


class Decoder:
    """The decoder of a model with its embeddings and its output layer.

    A context is an average of the memory, and the product of an average is the average of the
    products: so the kernels of contexts are multiplied with the whole memory, once. `vocabulary` is
    the number of tokens.
    """

    def __init__(self, model: keras.Model) -> None:
        layer = model.get_layer("decoder")
        self._cells = [read_cell(cell) for cell in getattr(layer.cell, "cells", [layer.cell])]
        self._embeddings = array(model.get_layer("target_embedding").embeddings)
        self.vocabulary, dim = self._embeddings.shape
        self.output_size, size = layer.output_size, layer.context_size
        self._bahdanau, self._feeds = layer.order == "bahdanau", layer.input_feeding
        self._deep = layer.readout == "deep"
        units = self._cells[-1].units
        self._attention = make(layer.attention, units, size)
        self._gate = (array(layer.gate_kernel), array(layer.gate_bias)) if layer.gate else None

        first, readout = self._cells[0], array(layer.output_kernel)
        # The rows of the first cell's kernel: of the token, of the last output, of the context.
        end = dim + (self.output_size if self._feeds else 0)
        of_token, bias = first.kernel[:dim], first.kernel_bias
        self._of_fed = first.kernel[dim:end]
        of_context = {"gates": first.kernel[end:]} if self._bahdanau else {}
        of_context["readout"] = readout[:size]
        self._of_output = readout[size : size + units]
        self._token_parts = [of_token.shape[1]]
        if self._deep:  # which sees the token, too
            rest = readout[size + units :]
            of_token = np.concatenate([of_token, rest], 1)
            bias = np.concatenate([bias, np.zeros(rest.shape[1], "float32")])
            self._token_parts.append(rest.shape[1])
        self._of_token = of_token, bias
        self._of_context = np.concatenate(list(of_context.values()), 1)
        self._context_parts = {name: kernel.shape[1] for name, kernel in of_context.items()}
        self._output = _output(model, self._embeddings)

    def prepare(self, g: Graph, memory: Value, mask: Value) -> Values:
        """Return tensors that depend on the memory `(B, S, dim)` alone, `(B, …)` by name.

        The mask is boolean `(B, 1, S)`.
        """
        heads = self._attention.heads
        if heads == 1:
            values = memory @ self._of_context
        else:  # of each head its part of the dimensions
            kernels = self._of_context.reshape(heads, -1, self._of_context.shape[1])
            apart = self._attention.split_keys(g, memory, self._attention.memory_dim)
            values = apart @ kernels
        return {"values": values, "mask": mask, **self._attention.prepare(g, memory, mask)}

    def start(self, g: Graph, memory: Value, states: list[Value]) -> Values:
        """Return the state before the first step, `(B, …)` by name; the cells' are `(B, units)`."""
        state = {f"state_{number}": x for number, x in enumerate(states)}
        if self._feeds:
            state["output"] = g.expand(0.0, g.size(memory, 0), self.output_size)
        return {**state, **self._attention.start(g, memory)}

    def step(self, g: Graph, times: Products, tokens: Value, memory: Values, state: Values) -> Step:
        """Take a step with tokens `(B·n,)` and the state `(B·n, …)` of `start` or the last step.

        `times` makes the products of rows; `memory` is the result of `prepare`.
        """
        rows = Rows(g, g.size(memory["mask"], 0))
        of_tokens = times.embedded(self._embeddings, tokens, *self._of_token)
        gates, *of_token = g.split(of_tokens, self._token_parts)
        if self._feeds:
            gates = gates + times(state["output"], self._of_fed, bounded=not self._deep)
        states = [[state[name] for name in names] for names in self._names()]
        if not self._bahdanau:
            states = self._advance(g, times, gates, states)
        context, weights, looked = self._look(g, times, states[-1][0], memory, state, rows)
        if self._bahdanau:
            states = self._advance(g, times, gates + context["gates"], states)
        hidden = context["readout"] + times(states[-1][0], self._of_output, bounded=True)
        if self._deep:  # a maxout: of each pair the greater
            pairs = g.reshape(hidden + of_token[0], 0, self.output_size, 2)
            output = g.over("ReduceMax", pairs, 2)
        else:
            output = g("Tanh", hidden)
        names = [name for group in self._names() for name in group]
        new = dict(zip(names, (x for each in states for x in each), strict=True))
        if self._feeds:
            new["output"] = output
        return Step(output, weights, {**new, **looked})

    def log_probs(self, g: Graph, times: Products, output: Value, part: int) -> Value:
        """Return log-probabilities `(B·n, V)` of the next token, from the output of a step.

        V is filled up to a multiple of `part` with tokens of probability 0.
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
        """Return the context times its kernels, the weights, and the mechanism's next state."""
        weights, looked = self._attention.weigh(g, times, query, memory, state, rows)
        context = weights @ memory["values"]
        if self._attention.heads > 1:
            context = g.over("ReduceSum", context, 1)
            weights = g.over("ReduceMean", weights, 1)
        context = rows.together(context, sum(self._context_parts.values()))
        if self._gate:
            kernel, bias = self._gate
            context = context * g("Sigmoid", times.exact(query, kernel, bias))
        parts = g.split(context, list(self._context_parts.values()))
        return dict(zip(self._context_parts, parts, strict=True)), weights, looked

    def _advance(
        self, g: Graph, times: Products, gates: Value, states: list[list[Value]]
    ) -> list[list[Value]]:
        """Advance the cells, one after the other."""
        new: list[list[Value]] = []
        for cell, old in zip(self._cells, states, strict=True):
            if new:
                gates = times(new[-1][0], cell.kernel, cell.kernel_bias, bounded=True)
            of_state = times(old[0], cell.recurrent, cell.recurrent_bias, bounded=True)
            new.append(advance(g, cell, gates, of_state, old))
        return new


def _output(model: keras.Model, embeddings: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the kernel and the bias of the output layer."""
    if "output" not in {layer.name for layer in model.layers}:
        return embeddings.T, None
    layer: Any = model.get_layer("output")
    return array(layer.kernel), array(layer.bias)


class Aligned:
    """An `AlignedDecoder`, with the attributes and methods of `Decoder`."""

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
        # The last weight is for all ways back.
        self._ways = np.append(array(layer.ways), np.float32(NEVER))

    def prepare(self, g: Graph, memory: Value, mask: Value) -> Values:
        """See `Decoder`."""
        keys, values = (memory @ kernel + bias for kernel, bias in (self._key, self._of_memory))
        return {"keys": keys, "values": values, "mask": mask}

    def start(self, g: Graph, memory: Value, states: list[Value]) -> Values:
        """See `Decoder`."""
        places = g.axis(g.range(g.size(memory, 1)), 1)
        first = g("Where", g("Equal", places, 0), 0.0, NEVER)
        said = g.expand(first, g.size(memory, 0), g.size(memory, 1), self.vocabulary)
        return {"said": said, **{f"state_{number}": x for number, x in enumerate(states)}}

    def step(self, g: Graph, times: Products, tokens: Value, memory: Values, state: Values) -> Step:
        """Take a step, see `Decoder`; the output is log-probabilities."""
        rows = Rows(g, g.size(memory["mask"], 0))
        names = [f"state_{number}" for number in range(self._cell.states)]
        states = [state[name] for name in names]
        cell = self._cell
        gates = times.embedded(self._embeddings, tokens, cell.kernel, cell.kernel_bias)
        of_state = times(states[0], cell.recurrent, cell.recurrent_bias, bounded=True)
        states = advance(g, cell, gates, of_state, states)

        length = g.size(memory["mask"], 2)
        token = g("Equal", g.axis(tokens, 1), np.arange(self.vocabulary))
        chosen = state["said"] * g.axis(g.cast(token, "float32"), 1)
        was = rows.apart(g("Softmax", g.over("ReduceSum", chosen, 2), axis=-1), length)
        moves = self._moves(g, times, states[0], memory, rows)
        places = g.squeeze(g.axis(was, 2) @ moves, 2)
        log_places = g("Log", g("Max", places, LEAST))
        vector = rows.apart(times(states[0], self._of_state, bounded=True), self._of_state.shape[1])
        vector = g("Tanh", g.axis(vector, 2) + g.axis(memory["values"], 1))
        kernel, bias = self._output
        spoken = g("LogSoftmax", times(vector, kernel, bias, bounded=True), axis=-1)
        said = rows.together(g.axis(log_places, 3) + spoken, length, self.vocabulary)
        new = dict(zip(names, states, strict=True))
        return Step(_log_sum_exp(g, said, 1), places, {**new, "said": said})

    def log_probs(self, g: Graph, times: Products, output: Value, part: int) -> Value:
        """Return log-probabilities, filled up: see `Decoder`."""
        missing = -self.vocabulary % part
        if not missing:
            return output
        never = g.expand(-np.inf, g.size(output, 0), missing)
        return g.concat([output, never], axis=1)

    def _moves(self, g: Graph, times: Products, query: Value, memory: Values, rows: Rows) -> Value:
        """Return the probabilities of places after each place, `(B, n, S, S)`."""
        asked = rows.apart(times(query, self._query, bounded=True), self._query.shape[1])
        hidden = g("Tanh", g.axis(asked, 2) + g.axis(memory["keys"], 1))
        scores = g("Where", memory["mask"], g.squeeze(hidden @ self._score, -1), NEVER)
        place = g.range(g.size(memory["mask"], 2))
        way = g.axis(place, 0) - g.axis(place, 1)
        way = g("Where", way > FARTHEST, FARTHEST, way)
        way = g("Where", way >= 0, way, FARTHEST + 1)
        weights = g.take(self._ways, way)
        return g("Softmax", g.axis(scores, 2) + weights, axis=-1)


def _log_sum_exp(g: Graph, x: Value, axis: int) -> Value:
    """Reduce as ReduceLogSumExp, in a fifth of its time for inner axes (onnxruntime 1.32)."""
    most = g.over("ReduceMax", x, axis, keep=True)
    return g("Log", g.over("ReduceSum", g("Exp", x - most), axis)) + g.squeeze(most, axis)
