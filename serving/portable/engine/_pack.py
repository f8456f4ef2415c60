"""Packs an ONNX export into the one file that the page loads.

The file contains the header's length, the header in JSON, and the numbers of all constants.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from serving.portable.engine._graphs import Numbers, read_graph
from serving.portable.read._manifest import has_sentences, read_vocabulary

_MODELS = {1: "unigram", 2: "bpe"}
_TYPES = {1, 2, 3}  # pieces that are normal, unknown or control
_SETTINGS = ("beam_width", "num_results", "length_penalty", "max_source_length", "target_bound")


def pack(folder: Path, manifest: dict[str, Any], page: dict[str, Any]) -> bytes:
    """Return the bytes of the page's file for an ONNX export.

    Raises ValueError if the export has a part or a setting that the browser's runtime lacks;
    OSError if a file cannot be read.
    """
    numbers, settings = Numbers(), manifest["settings"]
    lacking = {
        "copies words": manifest.get("copies"),
        "was exported with --replace-unknown": settings.get("replaces_unknown"),
    }
    for name in filter(lacking.get, lacking):
        raise ValueError(f"A page without a server cannot run {folder}, which {name}")
    header = {
        "graphs": {
            name: read_graph(folder / f"{name}.onnx", numbers) for name in ("encoder", "step")
        },
        "memory": manifest["graphs"]["memory"],
        "state": manifest["graphs"]["state"],
        "settings": {name: settings[name] for name in _SETTINGS if name in settings},
        "attends": manifest["attends"],
        "spelling": manifest.get("spelling"),
        "sentences": has_sentences(manifest),
        "page": page,
    }
    if manifest["task"] == "read":
        longest = manifest["runs"][0]["config"]["max_target_length"]
        header["image"] = {**manifest["source"], "longest": longest}
    for side, about in manifest["tokenizers"].items():
        header[side] = read_tokenizer(folder, about, numbers)
    return join_parts(header, numbers)


def join_parts(header: dict[str, Any], numbers: Numbers) -> bytes:
    """Return a file: the header's length, the header, and the numbers."""
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 4)  # numbers begin at a multiple of four
    return struct.pack("<I", len(text)) + text + numbers.tobytes()


def read_tokenizer(folder: Path, entry: dict[str, Any], numbers: Numbers) -> dict[str, Any]:
    """Return a tokenizer as `engine/sentencepiece.js` or `engine/vocabulary.js` expects it.

    Raises ValueError for a SentencePiece model that is neither unigram nor BPE, or that has pieces
    of types outside `_TYPES`.
    """
    path, kind = folder / entry["file"], entry["kind"]
    if kind != "sentencepiece":
        return read_vocabulary(folder, entry)
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
    except DecodeError:
        raise ValueError(f"{path} cannot be read: it is no model of sentencepiece") from None
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    types = {piece.type for piece in model.pieces}
    if trainer.model_type not in _MODELS or types - _TYPES or trainer.treat_whitespace_as_suffix:
        raise ValueError(
            f"{path} expected a unigram or BPE model with pieces of its own. Received: type "
            f"{trainer.model_type} with pieces of types {sorted(types)}"
        )

    def place(values: Any, dtype: str) -> list[int]:
        array = np.asarray(values, dtype)
        return [numbers.add(array), array.size]

    return {
        "kind": kind,
        "model": _MODELS[trainer.model_type],
        "pieces": [piece.piece for piece in model.pieces],
        "scores": place([piece.score for piece in model.pieces], "float32"),
        "types": place([piece.type for piece in model.pieces], "uint8"),
        "rules": place(np.frombuffer(normalizer.precompiled_charsmap, "uint8"), "uint8"),
        "prefix": normalizer.add_dummy_prefix,
        "trim": normalizer.remove_extra_whitespaces,
    }
