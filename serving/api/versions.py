"""Finds the versions of a model on disk, which are numbered directories."""

from __future__ import annotations

from pathlib import Path


def newest_version(path: Path, file: str) -> Path | None:
    """Return the newest version that has a file called `file`, None if no version has it.

    `path` is the folder of a model, or of a version; a version with the file is returned itself.
    """
    versions = [each for each in path.glob("*") if each.name.isdecimal()]
    versions.sort(key=lambda each: int(each.name), reverse=True)
    return next((each for each in (path, *versions) if (each / file).is_file()), None)
