"""An ONNX export to a page without a server."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from serving.client.local.manifest import MANIFEST
from serving.client.local.model import Folder
from serving.page.card import read_card
from serving.page.files.model import pack
from serving.page.files.pages import write_file, write_folder
from serving.page.questions import MOST_CHARACTERS, described

# By task; of each the last is there where the model attends.
SIGNATURES = {
    "translate": ("translate", "nbest", "align"),
    "read": ("read", "nbest", "regions"),
}


def write(export: Path, output: Path, single: bool, example: str = "") -> None:
    """Write the page of a translator, or of a reader of images.

    Args:
        export: a version that was exported with `--format onnx`, or the model, of whose versions
            the last is taken.
        output: a folder, or one HTML file.
        single: whether it is one file.
        example: a text to begin with.

    Raises:
        ValueError: for an export that is none, or one with parts that a browser has no form of.
        OSError: if a file cannot be read or written.
    """
    folder = Folder(export)
    task, attends = folder.manifest["task"], folder.manifest["attends"]
    if task not in SIGNATURES:
        raise ValueError(f"{export} expected a model to translate or to read. Received: to {task}")
    _check_search(export, folder.manifest)
    path = folder.path.resolve()
    numbered = path.name.isdecimal()
    page = {
        "model": path.parent.name if numbered else path.name,
        "version": int(path.name) if numbered else 1,
        "signatures": {name: {} for name in SIGNATURES[task][: None if attends else -1]},
        "reads": described(["image_bytes"]),
        "card": asdict(read_card(path / MANIFEST)),
        "example": example,
        "most_characters": MOST_CHARACTERS,
    }
    (write_file if single else write_folder)(output, pack(path, folder.manifest, page))


def _check_search(export: Path, manifest: dict[str, Any]) -> None:
    """Raise a ValueError, which names it, for what the browser's search does not know."""
    settings = manifest["settings"]
    unknown = {
        "one that copies": manifest.get("copies"),
        "--coverage-penalty": settings.get("coverage_penalty"),
        "--replace-unknown": settings.get("replaces_unknown"),
    }
    for what, value in unknown.items():
        if value:
            raise ValueError(f"{export} expected an export for a page. Received: {what}")
