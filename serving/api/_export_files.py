"""Reads the files of an export, which may come from an untrusted source.

A name must lead to a regular file inside the folder of the export, and a file has a maximum size.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping
from hashlib import file_digest
from pathlib import Path
from typing import Any

from serving.api._arguments import shown

ONNX_MANIFEST, SAVED_MANIFEST = "manifest.json", "assets.extra/manifest.json"
_MOST_MANIFEST_BYTES = 2**24
_MOST_BYTES = 2**35  # of all files of an export: 8 billion weights of 32 bits
_MOST_DEPTH = 24  # of JSON


def file_in(folder: Path, name: str, most: int = _MOST_BYTES) -> Path:
    """Return the path of a file of an export; `name` may have subfolders, as in `a/b`.

    Raises ValueError with a one-line message if the file is missing, outside the folder, a link out
    of it, a device, a pipe, or larger than `most` bytes.
    """
    parts = name.split("/")
    if {"", ".", ".."} & {*parts} or "\\" in name or "\0" in name:
        raise ValueError(f"{folder} expected names of files inside it. Received: {shown(name)}")
    path = folder / name
    try:
        status = path.stat()
        inside = path.resolve(strict=True).is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "its name leads nowhere"
        raise ValueError(f"{path} cannot be read: {reason}") from None
    if not inside or not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{path} expected to be a file of its folder. Received: a link or device")
    if status.st_size > most:
        raise ValueError(f"{path} expected at most {most:,} bytes. Received: {status.st_size:,}")
    return path


def read_json(folder: Path, name: str, most: int = _MOST_MANIFEST_BYTES) -> Any:
    """Return the JSON value in a file of an export.

    Raises ValueError as `file_in` does, and for text that is not JSON or is nested too deeply.
    """
    path = file_in(folder, name, most)
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError(f"{path} cannot be read: it is too deep") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    level = [value]
    for _ in range(_MOST_DEPTH):
        if not level:
            return value
        dicts = [part for each in level if isinstance(each, dict) for part in each.values()]
        level = dicts + [part for each in level if isinstance(each, list) for part in each]
    raise ValueError(f"{path} cannot be read: it is too deep")


def check_sum(path: Path, digest: str) -> None:
    """Raise ValueError if the SHA-256 of a file is not the expected one."""
    try:
        with path.open("rb") as file:
            received = file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    if received != digest:
        raise ValueError(f"{path} is not the file that was exported: export again")


def check_saved_model(folder: Path) -> bool:
    """Return whether a SavedModel is an export of this project, after checking its files.

    A SavedModel from elsewhere has no manifest. Raises ValueError with a one-line message that
    names the file if the manifest is not valid, or a file is not the one that was exported.
    """
    path = folder / SAVED_MANIFEST
    if not path.is_symlink() and not path.exists():
        return False
    about = read_json(folder, SAVED_MANIFEST)
    sums = about.get("files", {}) if isinstance(about, dict) else None
    if not isinstance(sums, Mapping) or not all(isinstance(each, str) for each in sums.values()):
        raise ValueError(f"{path} expected a dict with a dict of SHA-256 sums as files")
    paths = {name: file_in(folder, name) for name in sums}
    if (size := sum(each.stat().st_size for each in paths.values())) > _MOST_BYTES:
        raise ValueError(f"{folder} expected at most {_MOST_BYTES:,} bytes. Received: {size:,}")
    for name, file in paths.items():
        check_sum(file, sums[name])
    return "settings" in about
