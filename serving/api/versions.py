"""The versions of a model on a disk: numbered directories."""

from __future__ import annotations

from pathlib import Path


def newest_version(path: Path, file: str) -> Path | None:
    """Return the newest version of a model that has a file, None where no version has it.

    `path` is that of the model, or of a version, which is returned if it has the file.
    """
    versions = [each for each in path.glob("*") if each.name.isdecimal()]
    versions.sort(key=lambda each: int(each.name), reverse=True)
    return next((each for each in (path, *versions) if (each / file).is_file()), None)
