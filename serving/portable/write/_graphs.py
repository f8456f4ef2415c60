"""The graphs of a translator or reader, and the folder of an ONNX export."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import keras
import numpy as np
import onnx

from serving.portable.read._manifest import FORMAT, MANIFEST
from serving.portable.write._constants import Constants
from serving.portable.write._decoder import Aligned, Copying, Decoder, known_tokens
from serving.portable.write._encoders import ImageEncoder, TextEncoder, write_predictor
from serving.portable.write._graph import OPSET, Graph, Value, Values, without_prefix
from serving.portable.write._products import Products
from serving.portable.write._search import GraphSettings, part_of, search
from serving.portable.write._settings import BITS, ExportSettings
from training.command.errors import UserError
from training.config.schema import Config
from training.data.tokens.pieces import SENTENCEPIECE, model_of
from training.data.tokens.splitting import character_classes
from training.data.tokens.store import END_ID, PAD_ID, START_ID, UNK_ID
from training.data.tokens.tokenizers import Tokenizer
from training.decode.search import bound_of
from training.decode.texts import inside_characters
from training.decode.windows import spelling_of
from training.runs.run import Run
from training.sources.kinds import SOURCE_KINDS

ENCODERS: dict[str, type[TextEncoder] | type[ImageEncoder]] = {
    "text": TextEncoder,
    "image": ImageEncoder,
}
MAIN = {"text": "translator", "image": "reader"}
TASKS = {"text": "translate", "image": "read", "events": "predict"}  # by kind of source


class Model:
    """A model of `training.model.seq2seq.build_seq2seq`; for `bits` and `tables` see `Products`.

    `prefix` begins the names of memory and state, so that the models of an ensemble do not clash.
    """

    def __init__(
        self, config: Config, model: keras.Model, bits: int, tables: bool, prefix: str
    ) -> None:
        self.encoder = ENCODERS[config.source](config, model, bits)
        aligns = config.attention == "hard_monotonic"
        self.decoder: Aligned | Decoder = Aligned(model) if aligns else Decoder(model)
        self.copying = Copying(model) if config.copy else None
        self._bits, self._tables, self._prefix = bits, tables, prefix

    def encode(self, g: Graph, source: Value) -> tuple[Values, Values]:
        """Return the prepared memory and the state before the first step, `(B, …)` by name."""
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

        V is padded to a multiple of `part_of(vocabulary)` with tokens of probability 0. If the
        model copies, V is extended by the source's words instead.
        """
        times = Products(g, self._bits, self._tables)
        memory, state = (without_prefix(x, self._prefix) for x in (memory, state))
        if self.copying:
            tokens = known_tokens(g, tokens, self.copying.size)
        made = self.decoder.step(g, times, tokens, memory, state)
        part = 1 if self.copying else part_of(self.decoder.vocabulary)
        log_probs = self.decoder.log_probs(g, times, made.output, part)
        if self.copying:
            mixed = made.output, log_probs, made.weights, memory
            log_probs = self.copying.mix(g, times, *mixed)
        return log_probs, made.weights, self._named(made.state)

    def _named(self, values: Values) -> Values:
        return {f"{self._prefix}{name}": x for name, x in values.items()}


class Ensemble:
    """Averages the probabilities and attention weights of models; a single model is unchanged.

    All models have the same vocabularies; each has its own configuration.
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

    def encode(self, g: Graph, source: Value) -> tuple[Values, Values]:
        memories, states = zip(*(each.encode(g, source) for each in self._models), strict=True)
        return _joined(memories), _joined(states)

    def step(
        self, g: Graph, tokens: Value, memory: Values, state: Values
    ) -> tuple[Value, Value, Values]:
        steps = [each.step(g, tokens, memory, state) for each in self._models]
        if len(steps) == 1:
            return steps[0]
        log_probs, weights, states = zip(*steps, strict=True)
        together = g.concat([g.axis(x, 0) for x in log_probs], axis=0)
        mean = g.reduce("ReduceLogSumExp", together, 0) - float(np.log(len(steps)))
        return mean, g("Mean", *weights), _joined(states)


def _joined(values: Sequence[Values]) -> Values:
    return {name: x for each in values for name, x in each.items()}


def write_graphs(
    parts: Sequence[tuple[Config, keras.Model]], folder: Path, settings: ExportSettings
) -> dict[str, Any]:
    """Write `encoder.onnx`, `step.onnx`, `translator.onnx` or `reader.onnx`, and their weights.

    `parts` are one or more models of `training.model.seq2seq.build_seq2seq`, each with its
    configuration; several models form an ensemble. Raises UserError for a part without a form in
    ONNX.

    Returns:
        The dtypes and shapes of all inputs and outputs, by graph. "memory" lists the names of the
        step's inputs that stay the same, "state" those that change at every step.
    """
    model = Ensemble(parts, BITS[settings.weights], settings.tables)
    constants = Constants()
    written: dict[str, Any] = {}

    g = Graph(constants)
    memory, state = model.encode(g, model.encoder.input(g))
    written["encoder"] = g.save(folder / "encoder.onnx", {**memory, **state})
    shapes = {name: about["shape"] for name, about in written["encoder"]["outputs"].items()}

    g = Graph(constants)
    dtypes = {name: x.dtype for name, x in {**memory, **state}.items()}
    tokens = g.input("tokens", "int64", "N")
    inputs = {name: g.input(name, dtypes[name], *shapes[name]) for name in memory}
    carried = {name: ("N", *shapes[name][1:]) for name in state}
    before = {name: g.input(name, dtypes[name], *carried[name]) for name in state}
    log_probs, weights, new = model.step(g, tokens, inputs, before)
    if not model.copies:
        log_probs = g.slice(log_probs, 0, model.vocabulary, 1)
    weights = g.reshape(weights, -1, g.size(weights, 2))
    written["step"] = g.save(
        folder / "step.onnx",
        {"log_probs": log_probs, "weights": weights, **{f"next_{k}": new[k] for k in state}},
        log_probs=("N", "extended" if model.copies else model.vocabulary),
        weights=("N", "S"),
        **{f"next_{name}": shape for name, shape in carried.items()},
    )
    written["memory"], written["state"] = list(memory), list(state)

    g = Graph(constants)
    source = model.encoder.input(g)
    asked = GraphSettings(
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
        asked,
    )
    main = MAIN[parts[0][0].source]
    written[main] = g.save(
        folder / f"{main}.onnx",
        result._asdict(),
        found=("B", "results", "T"),
        lengths=("B", "results"),
        scores=("B", "results"),
        weights=("B", "results", "T", "weighed"),
        log_probs=("B", "results", "T"),
    )
    constants.save(folder)
    return written


def write_folder(
    runs: Sequence[Run], folder: Path, card: dict[str, Any], settings: ExportSettings
) -> dict[str, Any]:
    """Write an ONNX export of runs, several as an ensemble, into an empty directory.

    `card` is the manifest's part about the runs and the search. Returns the manifest. Raises
    UserError for a part of the model, or a setting, that has no form in ONNX here.
    """
    if (settings.precision, settings.coverage_penalty) != ("float32", 0.0):
        raise UserError("an export in ONNX expected precision float32 and coverage_penalty 0")
    run, (factor, more) = runs[0], bound_of(runs)
    search, config = dict(card["settings"]), run.config
    if SOURCE_KINDS[config.source].tokens:
        search["target_bound"] = factor, more
        config = dataclasses.replace(config, max_answer=f"{factor}x+{more}")
    parts = [(config, run.model), *((run.config, run.model) for run in runs[1:])]
    if run.config.target == "label":
        graphs, sides = write_predictor(parts, folder, BITS[settings.weights]), {}
    else:
        graphs = write_graphs(parts, folder, settings)
        sides = {"target": run.target_tokenizer}
        if SOURCE_KINDS[run.config.source].tokens:
            sides["source"] = run.source_tokenizer
    manifest = {
        **card,
        "format": FORMAT,
        "task": TASKS[run.config.source],
        "settings": search,
        "copies": run.config.copy,
        "attends": all(run.config.attention != "none" for run in runs),
        **({"spelling": spelling.entry()} if (spelling := spelling_of(runs)) else {}),
        "graphs": graphs,
        "source": _about_source(run),
        "tokenizers": {side: _write_tokenizer(t, folder, side) for side, t in sides.items()},
        "ids": {"pad": PAD_ID, "unknown": UNK_ID, "start": START_ID, "end": END_ID},
    }
    manifest["versions"] = {**card["versions"], "onnx": onnx.__version__, "opset": OPSET}
    text = json.dumps(manifest, ensure_ascii=False, indent=1)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")
    return manifest


def _about_source(run: Run) -> dict[str, Any]:
    """Return the manifest's entry `source`, of images or histories."""
    config, source = run.config, cast(Any, run.source)
    if config.source == "image":
        size = {"height": config.image_height, "width": config.image_width}
        regions = list(source.places or ())
        return {**size, "channels": config.image_channels, "regions": regions}
    if config.source == "text":
        return {}
    names = source.schema.inputs()
    logged = [name for name, logs in zip(names, source.schema.logged(), strict=True) if logs]
    return {"columns": ["time", *names], "log": logged, "max_events": source.most}


def _write_tokenizer(tokenizer: Tokenizer, folder: Path, side: str) -> dict[str, Any]:
    """Write a tokenizer's file; return its entry in the manifest."""
    state = tokenizer.state()
    if tokenizer.kind == SENTENCEPIECE:
        file = f"{side}.model"
        (folder / file).write_bytes(model_of(state))
    else:
        file = f"{side}.json"
        if tokenizer.kind == "words":
            state["characters"] = character_classes()
        text = json.dumps(state, ensure_ascii=False)
        (folder / file).write_text(text + "\n", encoding="utf-8")
    about = {"kind": tokenizer.kind, "file": file, "size": tokenizer.vocab_size}
    return {**about, "inside": inside_characters(tokenizer)}
