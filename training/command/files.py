"""Atomic writes: a file or folder is written completely or not at all."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from training.command.errors import UserError, refuse_windows

LOCK = ".lock"


def aside_of(path: Path) -> Path:
    """Return the temporary path for writing `path`. The suffix stays the same."""
    return path.with_name(f"writing-{path.name}")


def move(aside: Path, path: Path) -> Path:
    """Rename a temporary file or folder to its final path, after its content is on the disk.

    Without `fsync`, a rename may reach the disk before the content does. After a power cut, the
    file would be empty.
    """
    for each in [*aside.rglob("*"), aside]:
        sync(each)
    aside.replace(path)
    sync(path.parent)
    return path


def sync(path: Path) -> None:
    """Wait until a file's content, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_space(folder: Path, size: int) -> None:
    """Raise the OSError of a full disk if a folder has no space for a file of `size` bytes.

    Call this before HDF5 writes: HDF5 kills the process with a signal when the disk is full.
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
            if hasattr(os, "posix_fallocate"):  # macOS lacks this function
                os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(folder)) from None


@contextmanager
def name_path_in_oserror(path: Path) -> Iterator[None]:
    """Add this path to an OSError that has no file name, such as the error of a full disk."""
    try:
        yield
    except OSError as error:
        # an OSError without a number is not from the system
        if error.errno and error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def replacing(path: Path, aside: Path | None = None) -> Iterator[Path]:
    """Write a file or folder completely or not at all, even if another process writes it, too.

    Yields:
        The temporary path to write to: `aside`, or else a path that no other process uses. Nothing
        exists at this path yet. Raises OSError if a file would replace a folder.
    """
    aside = aside or path.with_name(f"writing-{uuid.uuid4().hex}-{path.name}")
    remove(aside)
    try:
        with name_path_in_oserror(path):
            yield aside
        if path.is_dir() and aside.is_dir():
            shutil.rmtree(path)
        move(aside, path)
    finally:
        remove(aside)


def remove(path: Path) -> None:
    """Remove a file or folder if it exists; of a link, the link only."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file completely or not at all."""
    with replacing(path) as aside:
        aside.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON. Raises ValueError if a number is not finite."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Return the value of a JSON file. Raises UserError if the file cannot be read or parsed."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot read {path}: {reason}") from None


@contextmanager
def locked_folder(folder: Path, name: Path, wait: bool = False) -> Iterator[list[Path]]:
    """Create a folder and lock it against other processes; yield the folders that were created.

    The lock is an operating-system lock on the file `.lock`. The lock ends with the process, even
    if the process is killed. Whoever holds the lock may remove the folder: a process that waits
    then creates the folder again.

    Args:
        folder: the folder.
        name: what errors call the folder.
        wait: whether to wait for the lock while another process holds it.

    Raises UserError if the folder cannot be created, written to or locked, or if another process
    holds the lock.
    """
    refuse_windows()
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = _open_lock(folder / LOCK)
        except FileNotFoundError:  # removed in the meantime
            continue
        except OSError as error:
            raise UserError(f"cannot write to {name}: {error.strerror}") from None
        with file:
            _lock(file, name, wait)
            if not _is_file_at(folder / LOCK, file):  # the lock is of a folder that was removed
                continue
            file.truncate(0)
            with suppress(OSError):  # a full disk has no space for the process number
                os.write(file.fileno(), f"{os.getpid()}\n".encode())
            with name_path_in_oserror(name):
                yield made
            return


def _open_lock(path: Path) -> TextIO:
    """Open a lock file, which is never a link: its target would be truncated."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except OSError:
        if path.is_symlink():
            raise UserError(f"{path} is a link, not a lock. Remove it") from None
        raise
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
        os.close(descriptor)
        raise UserError(f"{path} is not a lock. Remove it")
    return os.fdopen(descriptor, "r+", encoding="utf-8")


def _lock(file: TextIO, name: Path, wait: bool) -> None:
    """Lock a file against other processes. Raises UserError."""
    import fcntl  # not available on Windows

    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = file.read().strip() or "another one"
        raise UserError(f"{name} is in use by process {owner}") from None
    except OSError as error:
        hint = "Choose a folder on a disk with file locks"
        raise UserError(f"cannot lock {name}: {error.strerror}. {hint}") from None


def _is_file_at(path: Path, file: TextIO) -> bool:
    """Return whether an open file is the one at a path."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


@contextmanager
def locked_aside(aside: Path, name: Path, wait: bool = False) -> Iterator[Path]:
    """Lock a temporary folder and yield an empty folder in it, which the caller fills and moves.

    The temporary folder stays locked until the end, and is then removed. What a killed process left
    in it is removed first. Arguments and errors are the same as for `locked_folder`.
    """
    with locked_folder(aside, name, wait) as made:
        try:
            for left in aside.iterdir():
                if left.name != LOCK:
                    remove(left)
            content = aside / "content"
            content.mkdir()
            yield content
        finally:
            remove(aside)
            remove_empty(made[1:])


@contextmanager
def written_aside(folder: Path) -> Iterator[Path]:
    """Write a folder completely or not at all: yield a temporary folder that is renamed at the end.

    Raises UserError if `folder` is not empty or cannot be created, or if another process writes it.
    """
    with locked_aside(aside_of(folder), folder) as content:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UserError(f"{folder} is not empty: choose another place")
        yield content
        move(content, folder)


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove folders in order, up to the first folder that is not empty."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()
