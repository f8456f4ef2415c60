"""A decoder's step: attend, advance, read out; and the log-probabilities of what follows."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
import numpy as np

from serving.export.onnx.cells import advance, array, read_cell
from serving.export.onnx.graph import Graph, Value
from serving.export.onnx.mechanisms import Rows, make
from serving.export.onnx.mechanisms.mechanism import Shape, Values
from serving.export.onnx.products import Products
from training.command.errors import UserError


class Step(NamedTuple):
    """The outputs of a step for `B·n` rows.

    Attributes:
        output: `(B·n, readout_units)`.
        weights: `(B, n, S)`, of several heads their mean.
        state: the next, by name.
    """

    output: Value
    weights: Value
    state: Values


class Decoder:
    """The decoder of a model with its embeddings and its output layer.

    A context is an average of the memory, and the product of an average is the average of the
    products: so the kernels of contexts are multiplied with the whole memory, once.

    Args:
        model: of `training.model`.

    Attributes:
        vocabulary: number of tokens.
        state_sizes: width of each recurrent state.
    """

    def __init__(self, model: keras.Model) -> None:
        layer = model.get_layer("decoder")
        if layer.output_kernel is None:
            raise UserError("ONNX expected a decoder with one memory and readout_units")
        self._cells = [read_cell(cell) for cell in getattr(layer.cell, "cells", [layer.cell])]
        self._embeddings = array(model.get_layer("target_embedding").embeddings)
        self.vocabulary, dim = self._embeddings.shape
        self.output_size, size = layer.output_size, layer.context_size
        self._bahdanau, self._feeds = layer.order == "bahdanau", layer.input_feeding
        self._deep = layer.readout == "deep"
        activation = layer.activation.__name__
        if activation != "tanh" and not self._deep:
            raise UserError(f"ONNX expected a decoder with activation=tanh. Received: {activation}")
        units = self._cells[-1].units
        self._attention = make(layer.attention, units, size)
        self._gate = (array(layer.gate_kernel), array(layer.gate_bias)) if layer.gate else None
        self.state_sizes = [cell.units for cell in self._cells for _ in range(cell.states)]

        first, readout = self._cells[0], array(layer.output_kernel)
        # The rows of the first cell's kernel: of the token, of what is fed back, of the context.
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
        """Return what depends on the memory alone, `(B, …)` by name.

        Args:
            g: the graph.
            memory: `(B, S, dim)`.
            mask: boolean `(B, 1, S)`.
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
        """Return the state before the first step, `(B, …)` by name.

        Args:
            g: the graph.
            memory: `(B, S, dim)`.
            states: of the cells, each `(B, units)`.
        """
        state = {f"state_{number}": x for number, x in enumerate(states)}
        if self._feeds:
            state["output"] = g.expand(0.0, g.size(memory, 0), self.output_size)
        return {**state, **self._attention.start(g, memory)}

    def shapes(self) -> dict[str, Shape]:
        """Return by name the shapes, without the batch, of what is prepared and carried."""
        size = sum(self._context_parts.values())
        lead = () if self._attention.heads == 1 else (self._attention.heads,)
        return {
            "values": (*lead, "S", size),
            "mask": (1, "S"),
            **{f"state_{number}": (size,) for number, size in enumerate(self.state_sizes)},
            "output": (self.output_size,),
            **self._attention.shapes(),
        }

    def step(self, g: Graph, times: Products, tokens: Value, memory: Values, state: Values) -> Step:
        """Take a step.

        Args:
            g: the graph.
            times: for the products of rows.
            tokens: `(B·n,)`.
            memory: what `prepare` gave.
            state: what `start` or the last step gave, `(B·n, …)`.
        """
        rows = Rows(g, g.size(memory["mask"], 0))
        of_tokens = times.embedded(self._embeddings, tokens, *self._of_token)
        gates, *of_token = g.split(of_tokens, self._token_parts)
        if self._feeds:
            gates = gates + times(state["output"], self._of_fed, bounded=not self._deep)
        states = [[state[name] for name in names] for names in self._names()]
        if self._bahdanau:
            query = states[-1][0]
            context, weights, looked = self._look(g, times, query, memory, state, rows)
            states = self._advance(g, times, gates + context["gates"], states)
        else:
            states = self._advance(g, times, gates, states)
            query = states[-1][0]
            context, weights, looked = self._look(g, times, query, memory, state, rows)
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
        """Return log-probabilities `(B·n, V)` of what follows an output.

        Args:
            g: the graph.
            times: for the product.
            output: of a step.
            part: V is filled up, with what is never said, to a multiple of it.
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
        """Names of the states of each cell."""
        number, names = 0, []
        for cell in self._cells:
            names.append([f"state_{number + i}" for i in range(cell.states)])
            number += cell.states
        return names

    def _look(
        self, g: Graph, times: Products, query: Value, memory: Values, state: Values, rows: Rows
    ) -> tuple[Values, Value, Values]:
        """Attend: products of the context, weights, and what the mechanism remembers."""
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
