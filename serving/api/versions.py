"""Finds the versions of a model on disk, which are numbered directories."""

from __future__ import annotations

from pathlib import Path

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
