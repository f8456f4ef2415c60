"""The folder of an ONNX export: graphs, tokenizers that need no TensorFlow, and the manifest."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from serving.export.onnx.graph import OPSET
from serving.export.onnx.graphs import write_graphs
from training.command.errors import UserError
from training.data.ids import END_ID, PAD_ID, START_ID, UNK_ID
from training.data.pieces import KIND, model_of
from training.data.tokenizers import Tokenizer, character_classes
from training.runs.run import Run

MANIFEST = "manifest.json"
BITS = {"float32": 32, "int8": 8}


def check_exports(runs: Sequence[Run], settings: Mapping[str, Any]) -> None:
    """Raise a UserError, which names it, for what has no form in ONNX here."""
    if len(runs) > 1:
        raise UserError(f"--format onnx expected one --run. Received: {len(runs)} runs")
    config = runs[0].config
    for key, expected in (("source", "text"), ("target", "text"), ("copy", False)):
        if (found := getattr(config, key)) != expected:
            raise UserError(f"--format onnx expected {key} = {expected}. Received: {found}")
    expected_settings = {
        "coverage_penalty": (0.0,),
        "replaces_unknown": (False,),
        "precision": ("float32",),
        "weights": tuple(BITS),
    }
    for name, choices in expected_settings.items():
        if (found := settings.get(name, choices[0])) not in choices:
            option = name.replace("_", "-").replace("replaces", "replace")
            raise UserError(
                f"--format onnx expected --{option} {' or '.join(map(str, choices))}. "
                f"Received: {found}"
            )


def write_folder(run: Run, folder: Path, settings: Mapping[str, Any], card: dict) -> None:
    """Write an ONNX export.

    Args:
        run: what is exported.
        folder: an empty directory.
        settings: of the search, `weights` and `tables`.
        card: what the manifest says of the run.

    Raises:
        UserError: for a part of the model that has no form in ONNX here.
    """
    attends = run.config.attention != "none"
    bits, tables = BITS[settings.get("weights", "float32")], settings.get("tables", True)
    graphs = write_graphs(run.model, folder, attends, bits, tables)
    sides = {"source": run.source_tokenizer, "target": run.target_tokenizer}
    manifest = {
        **card,
        "format": "onnx",
        "task": "translate",
        "settings": dict(settings),
        "attends": attends,
        "graphs": graphs,
        "tokenizers": {side: _write_tokenizer(t, folder, side) for side, t in sides.items()},
        "ids": {"pad": PAD_ID, "unknown": UNK_ID, "start": START_ID, "end": END_ID},
    }
    manifest["versions"] = {**card["versions"], "onnx": onnx.__version__, "opset": OPSET}
    write_manifest(folder, manifest)


def write_manifest(folder: Path, more: Mapping[str, Any]) -> None:
    """Write the manifest, or what it says more than it did."""
    path = folder / MANIFEST
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    text = json.dumps({**known, **more}, ensure_ascii=False, indent=1)
    path.write_text(text + "\n", encoding="utf-8")


def _write_tokenizer(tokenizer: Tokenizer, folder: Path, side: str) -> dict[str, Any]:
    """Write a tokenizer's file; return its name, the kind and the number of ids."""
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
    return {"kind": tokenizer.kind, "file": file, "size": tokenizer.vocab_size}
