"""The three graphs of a translator: its encoder, its decoder's step, and all with a search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras

from serving.export.onnx.constants import Constants
from serving.export.onnx.decoder import Decoder
from serving.export.onnx.encoder import TextEncoder
from serving.export.onnx.graph import Graph, Value
from serving.export.onnx.products import Products
from serving.export.onnx.search import Asked, part_of, search

Values = dict[str, Value]


def write_graphs(
    model: keras.Model, folder: Path, attends: bool, bits: int, tables: bool = True
) -> dict[str, Any]:
    """Write `encoder.onnx`, `step.onnx` and `translator.onnx`, and the weights of all.

    Args:
        model: of `training.model.seq2seq.build_seq2seq`, from a text.
        folder: where to.
        attends: whether its decoder attends.
        bits: of products, 32 or 8.
        tables: see `Products`.

    Returns:
        The names, dtypes and shapes of all inputs and outputs, by graph.

    Raises:
        UserError: for a part that has no form in ONNX here.
    """
    decoder, encoder = Decoder(model), TextEncoder(model, attends, bits)
    constants = Constants()
    part = part_of(decoder.vocabulary)
    written: dict[str, Any] = {}

    g = Graph(constants)
    encoded = encoder(g, Products(g, bits, tables), g.input("ids", "int64", "B", "S"))
    memory = decoder.prepare(g, encoded.memory, encoded.mask)
    state = decoder.start(g, encoded.memory, encoded.states)
    shapes = {name: ("B", *shape) for name, shape in decoder.shapes().items()}
    written["encoder"] = g.save(
        folder / "encoder.onnx",
        {name: (x, shapes[name]) for name, x in {**memory, **state}.items()},
    )

    g = Graph(constants)
    dtypes = {name: x.dtype for name, x in {**memory, **state}.items()}
    tokens = g.input("tokens", "int64", "N")
    inputs = {name: g.input(name, dtypes[name], *shapes[name]) for name in memory}
    shapes = {name: ("N", *shape[1:]) for name, shape in shapes.items()}
    before = {name: g.input(name, dtypes[name], *shapes[name]) for name in state}
    times = Products(g, bits, tables)
    taken = decoder.step(g, times, tokens, inputs, before)
    log_probs = decoder.log_probs(g, times, taken.output, part)
    outputs = {
        "log_probs": (g.slice(log_probs, 0, decoder.vocabulary, 1), ("N", decoder.vocabulary)),
        "weights": (g.reshape(taken.weights, -1, g.size(taken.weights, 2)), ("N", "S")),
        **{f"next_{name}": (taken.state[name], shapes[name]) for name in state},
    }
    written["step"] = g.save(folder / "step.onnx", outputs)
    written["memory"], written["state"] = list(memory), list(state)

    g = Graph(constants)
    ids = g.input("ids", "int64", "B", "S")
    asked = Asked(
        g.input("beam_width", "int64", 1),
        g.input("num_results", "int64", 1),
        g.input("length_penalty", "float32"),
        g.input("with_weights", "bool", 1),
    )
    encoded = encoder(g, Products(g, bits, tables), ids)
    memory = decoder.prepare(g, encoded.memory, encoded.mask)
    state = decoder.start(g, encoded.memory, encoded.states)
    there = g.cast(~g("Equal", ids, 0), "float32")
    limits = g.over("ReduceSum", there, 1, keep=True) * 2.0 + 10.0

    def decode(tokens: Value, memory: Values, state: Values) -> tuple[Value, Value, Values]:
        times = Products(g, bits, tables)
        taken = decoder.step(g, times, tokens, memory, state)
        return decoder.log_probs(g, times, taken.output, part), taken.weights, taken.state

    vocabulary = -(-decoder.vocabulary // part) * part
    found = search(g, decode, memory, state, limits, vocabulary, asked)
    shapes_found = {
        "ids": ("B", "results", "T"),
        "lengths": ("B", "results"),
        "scores": ("B", "results"),
        "weights": ("B", "results", "T", "weighed"),
    }
    outputs = {
        {"ids": "found"}.get(name, name): (x, shapes_found[name])
        for name, x in found._asdict().items()
    }
    written["translator"] = g.save(folder / "translator.onnx", outputs)
    constants.save(folder)
    return written
