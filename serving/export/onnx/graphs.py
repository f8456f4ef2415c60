"""The three graphs of a translator or reader: encoder, decoder's step, and all with a search."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

from serving.export.onnx.constants import Constants
from serving.export.onnx.graph import Graph, Value
from serving.export.onnx.model import Ensemble
from serving.export.onnx.search import Settings, part_of, search
from training.config.schema import Config

MAIN = {"text": "translator", "image": "reader"}


def write_graphs(
    parts: Sequence[tuple[Config, keras.Model]],
    folder: Path,
    bits: int,
    tables: bool = True,
    coverage_penalty: float = 0.0,
) -> dict[str, Any]:
    """Write `encoder.onnx`, `step.onnx`, `translator.onnx` or `reader.onnx`, and their weights.

    Args:
        parts: a model of `training.model.seq2seq.build_seq2seq`, or several that are used as an
            ensemble, each with its configuration.
        folder: where to.
        bits: of products, 32 or 8.
        tables: see `Products`.
        coverage_penalty: of the search in the graph, see `keras_attention.beam_search`.

    Returns:
        The names, dtypes and shapes of all inputs and outputs, by graph; and under "memory" and
        "state" the names of what every step takes, and of what changes from step to step.

    Raises:
        UserError: for a part that has no form in ONNX here.
    """
    model, constants = Ensemble(parts, bits, tables), Constants()
    written: dict[str, Any] = {}

    g = Graph(constants)
    memory, state = model.encode(g, model.encoder.input(g))
    shapes = {name: ("B", *shape) for name, shape in model.shapes().items()}
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
    log_probs, weights, new = model.step(g, tokens, inputs, before)
    said: tuple[str | int, ...] = ("N", "extended" if model.copies else model.vocabulary)
    if not model.copies:
        log_probs = g.slice(log_probs, 0, model.vocabulary, 1)
    outputs = {
        "log_probs": (log_probs, said),
        "weights": (g.reshape(weights, -1, g.size(weights, 2)), ("N", "S")),
        **{f"next_{name}": (new[name], shapes[name]) for name in state},
    }
    written["step"] = g.save(folder / "step.onnx", outputs)
    written["memory"], written["state"] = list(memory), list(state)

    g = Graph(constants)
    source = model.encoder.input(g)
    settings = Settings(
        g.input("beam_width", "int64", 1),
        g.input("num_results", "int64", 1),
        g.input("length_penalty", "float32"),
        g.input("with_weights", "bool", 1),
    )
    memory, state = model.encode(g, source)
    part = part_of(model.vocabulary)
    vocabulary: int | Value = -(-model.vocabulary // part) * part
    if model.copies:
        vocabulary = g("Squeeze", g.size(source, 1)) + model.vocabulary
    result = search(
        g,
        lambda *now: model.step(g, *now),
        memory,
        state,
        model.encoder.limits(g, source),
        vocabulary,
        settings,
        coverage_penalty,
    )
    shapes_found = {
        "ids": ("B", "results", "T"),
        "lengths": ("B", "results"),
        "scores": ("B", "results"),
        "weights": ("B", "results", "T", "weighed"),
        "log_probs": ("B", "results", "T"),
    }
    outputs = {
        {"ids": "found"}.get(name, name): (x, shapes_found[name])
        for name, x in result._asdict().items()
    }
    main = MAIN[parts[0][0].source]
    written[main] = g.save(folder / f"{main}.onnx", outputs)
    constants.save(folder)
    return written
