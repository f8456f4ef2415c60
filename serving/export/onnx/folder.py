"""The folder of an ONNX export: graphs, tokenizers that need no TensorFlow, and the manifest."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from serving.export.onnx.events import write_predictor
from serving.export.onnx.graph import OPSET
from serving.export.onnx.graphs import write_graphs
from training.command.errors import UserError
from training.data.pieces import KIND, model_of
from training.data.store import END_ID, PAD_ID, START_ID, UNK_ID
from training.data.tokenizers import Tokenizer, character_classes
from training.decode.texts import inside_characters
from training.runs.run import Run
from training.sources.kinds import KINDS

MANIFEST = "manifest.json"
BITS = {"float32": 32, "int8": 8}
TASKS = {"text": "translate", "image": "read", "events": "predict"}  # by kind of source


def check_exports(runs: Sequence[Run], settings: Mapping[str, Any]) -> None:
    """Raise a UserError, which names it, for what has no form in ONNX here."""
    for run in runs:
        if run.config.source not in TASKS:
            raise UserError(
                f"--format onnx expected source = {' or '.join(TASKS)}. "
                f"Received: {run.config.source}"
            )
    expected: dict[str, tuple[str, ...]] = {"precision": ("float32",), "weights": tuple(BITS)}
    for name, choices in expected.items():
        if (found := settings.get(name, choices[0])) not in choices:
            raise UserError(
                f"--format onnx expected --{name} {' or '.join(choices)}. Received: {found}"
            )


def write_folder(
    runs: Sequence[Run], folder: Path, settings: Mapping[str, Any], card: dict
) -> None:
    """Write an ONNX export.

    Args:
        runs: what is exported, several as an ensemble.
        folder: an empty directory.
        settings: of the search, `weights` and `tables`.
        card: what the manifest says of the run.

    Raises:
        UserError: for a part of the model that has no form in ONNX here.
    """
    run, parts = runs[0], [(run.config, run.model) for run in runs]
    bits = BITS[settings.get("weights", "float32")]
    if run.config.target == "label":
        graphs, sides = write_predictor(parts, folder, bits), {}
    else:
        tables = settings.get("tables", True)
        penalty = settings.get("coverage_penalty", 0.0)
        graphs = write_graphs(parts, folder, bits, tables, penalty)
        sides = {"target": run.target_tokenizer}
        if KINDS[run.config.source].tokens:
            sides["source"] = run.source_tokenizer
    manifest = {
        **card,
        "format": "onnx",
        "task": TASKS[run.config.source],
        "settings": dict(settings),
        "copies": run.config.copy,
        "attends": all(run.config.attention != "none" for run in runs),
        "graphs": graphs,
        "source": _about_source(run),
        "tokenizers": {side: _write_tokenizer(t, folder, side) for side, t in sides.items()},
        "ids": {"pad": PAD_ID, "unknown": UNK_ID, "start": START_ID, "end": END_ID},
    }
    manifest["versions"] = {**card["versions"], "onnx": onnx.__version__, "opset": OPSET}
    write_manifest(folder, manifest)


def _about_source(run: Run) -> dict[str, Any]:
    """Return what the manifest says of a source that is no text."""
    source, config = run.source, run.config
    if config.source == "image":
        size = {"height": config.image_height, "width": config.image_width}
        regions = list(source.places(config) or ())
        return {**size, "channels": config.image_channels, "regions": regions}
    return {"columns": list(source.inputs())} if config.source == "events" else {}


def write_manifest(folder: Path, more: Mapping[str, Any]) -> None:
    """Write the manifest, or what it says more than it did."""
    path = folder / MANIFEST
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    text = json.dumps({**before, **more}, ensure_ascii=False, indent=1)
    path.write_text(text + "\n", encoding="utf-8")


def _write_tokenizer(tokenizer: Tokenizer, folder: Path, side: str) -> dict[str, Any]:
    """Write a tokenizer's file.

    Returns:
        Its name, the kind, the number of ids, and which of its characters go on with a word.
    """
    state = tokenizer.state()
    if tokenizer.kind == KIND:
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
