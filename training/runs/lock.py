"""One process at a time writes to a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from training.command.files import locked_folder, remove_empty
from training.runs.files import RunFiles


@contextmanager
def locked(files: RunFiles) -> Iterator[None]:
    """Make the run directory if need be, and keep other processes from writing to it.

    A directory that was made here and has not become a run by then is removed.

    Raises:
        UserError: the directory cannot be made or written to, or is another process's.
    """
    with locked_folder(files.path, files.path) as made:
        files.clean()
        try:
            yield
        finally:
            if not files.config.is_file():
                files.clean()
                files.lock.unlink(missing_ok=True)
                remove_empty(made)
