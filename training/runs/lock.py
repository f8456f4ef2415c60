"""One process at a time writes to a run."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from training.command.errors import RunError
from training.runs.files import RunFiles


@contextmanager
def locked(files: RunFiles) -> Iterator[None]:
    """Make the run directory if need be, and keep other processes from writing to it.

    The lock is the operating system's and ends with the process, however that ends. A directory
    that was made here and has not become a run by then is removed.

    Raises:
        RunError: if the directory cannot be made or written to, or is another process's.
    """
    made = _make(files.path)
    try:
        file = files.lock.open("a+", encoding="utf-8")
    except OSError as error:
        raise RunError(f"cannot write to {files.path}: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "another one"
            raise RunError(f"{files.path} is in use by process {owner}") from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        files.clean()
        try:
            yield
        finally:
            if not files.config.is_file():
                files.clean()
                files.lock.unlink(missing_ok=True)
                with suppress(OSError):  # what else is in it is not ours
                    for folder in made:
                        folder.rmdir()


def _make(path: Path) -> list[Path]:
    """Make a directory; return those that were missing, the innermost first."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot write to {path}: {error.strerror}") from error
    return missing
