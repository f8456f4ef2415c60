"""Versions on disk: `<base path>/<number>`, a SavedModel or the folder of an ONNX export."""

import os
from pathlib import Path
from stat import S_ISDIR, S_ISREG

ONNX_MANIFEST = "manifest.json"
_MOST_DIGITS = 19  # of an int64

Fingerprint = tuple[tuple[str, int, int, int, int], ...]


def list_versions(base_path: Path) -> dict[int, Path]:
    """Version directories below `base_path` by number; none if it does not exist."""
    try:
        return read_versions(base_path)
    except (FileNotFoundError, NotADirectoryError):
        return {}


def read_versions(base_path: Path) -> dict[int, Path]:
    """As `list_versions`, but raise OSError if `base_path` cannot be read.

    A number that is not an int64 is no version, as in TensorFlow Serving.
    """
    return {
        int(child.name): child
        for child in base_path.iterdir()
        if child.name.isascii()
        and child.name.isdecimal()
        and len(child.name.lstrip("0")) <= _MOST_DIGITS
        and int(child.name) < 2**63
        and child.is_dir()
    }


def fingerprint(version_dir: Path) -> Fingerprint:
    """Name, size, times of content and of status, and inode of every file of a version.

    It changes while a version is copied, by chmod, and where a file is replaced by another. Raises
    OSError for what is neither file nor folder: reading a pipe would never end.
    """
    stats = []
    for folder, folders, files in os.walk(version_dir, onerror=_raise):
        for name in (*folders, *files):
            path = Path(folder, name)
            try:
                # Working links are followed: models often consist of links.
                stat = path.stat() if path.exists() else path.lstat()
            except FileNotFoundError:
                continue
            if not (S_ISREG(stat.st_mode) or S_ISDIR(stat.st_mode)):
                raise OSError(f"{path} is not a file")
            times = stat.st_mtime_ns, stat.st_ctime_ns
            stats.append((str(path.relative_to(version_dir)), stat.st_size, *times, stat.st_ino))
    return tuple(sorted(stats))


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def is_onnx(version_dir: Path) -> bool:
    """Whether a version is the folder of an ONNX export."""
    return (version_dir / ONNX_MANIFEST).is_file()
