"""The kinds of files that readers read: a line for each."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from serving.client.file_kind import FileKind
from serving.client.image_files import IMAGE

KINDS = (IMAGE,)


def kind_of(example: Any) -> FileKind:
    """Return the kind that a path or the bytes of a file show; the first where nothing does."""
    shown = example if isinstance(example, str | Path | bytes) else b""
    return next((kind for kind in KINDS if kind.is_one(shown)), KINDS[0])


def kind_of_name(name: str) -> FileKind | None:
    """Return the kind of files with a name of this ending, None for any other."""
    return next((kind for kind in KINDS if kind.is_name(name)), None)


def kind_of_inputs(inputs: Collection[str]) -> FileKind:
    """Return the kind that a model with these inputs reads; the first where it reads none."""
    return next((kind for kind in KINDS if kind.input in inputs), KINDS[0])
