"""Finds the versions of a model on disk, which are numbered directories."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from serving.api._export_files import ONNX_MANIFEST

# Path, size, mtime, ctime and inode of every file and folder of a version.
Fingerprint = tuple[tuple[str, int, int, int, int], ...]
LARGEST_VERSION = 2**63 - 1  # an int64


def version_number(name: str) -> int | None:
    """Return the version that servers read in the name of a directory, None if they read none.

    As in TensorFlow Serving, zeros may lead, and a number that exceeds int64 is not a version.
    """
    if not (name.isascii() and name.isdecimal() and len(name) < 100):
        return None
    return number if (number := int(name)) <= LARGEST_VERSION else None


def find_versions(base_path: Path) -> dict[int, Path]:
    """Return the version directories in `base_path` by number, in order. Raises OSError.

    Of several names of one number, such as `7` and `007`, the shortest counts.
    """
    versions: dict[int, Path] = {}
    for child in sorted(base_path.iterdir(), key=lambda child: -len(child.name)):
        number = version_number(child.name)
        if number is not None and child.is_dir():
            versions[number] = child
    return dict(sorted(versions.items()))


def newest_version(path: Path, file: str) -> Path | None:
    """Return the newest version that has a file called `file`, None if no version has it.

    `path` is the folder of a model, or of a version; a version with the file is returned itself.
    Raises OSError if the folder cannot be read.
    """
    versions = reversed(find_versions(path).values()) if path.is_dir() else ()
    return next((each for each in (path, *versions) if (each / file).is_file()), None)


def why_no_version(base_path: Path, wanted: Collection[int] = ()) -> str:
    """Return the reason, on one line, why a folder has no version, or none of the wanted ones.

    Raises OSError.
    """
    if any((base_path / name).exists() for name in ("saved_model.pb", ONNX_MANIFEST)):
        above = f"Give the directory above it as base path: {base_path.parent}"
        return f"{base_path} is a version. {above}"
    below = [child for child in sorted(base_path.iterdir()) if child.is_dir()]
    if models := [child for child in below if find_versions(child)]:
        some = f"{base_path} holds models. Give one of them as base path: {models[0]}"
        return f"{some}. Or list several in --model_config_file"
    return f"{base_path} holds no directory {' or '.join(map(str, wanted)) or 'with a number'}"


def fingerprint(version_dir: Path) -> Fingerprint:
    """Return what changes while a version is copied, on chmod, and when a file is replaced.

    Raises OSError for anything but files and folders: reading a pipe would never end.
    """
    stats = []
    for folder, folders, files in os.walk(version_dir):
        for path in (Path(folder, name) for name in (*folders, *files)):
            try:
                stat = path.stat()
            except FileNotFoundError:  # removed since the listing, or a broken link
                continue
            if not (S_ISREG(stat.st_mode) or S_ISDIR(stat.st_mode)):
                raise OSError(f"{path} is not a file")
            times = stat.st_mtime_ns, stat.st_ctime_ns
            stats.append((str(path), stat.st_size, *times, stat.st_ino))
    return tuple(sorted(stats))
