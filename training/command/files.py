"""Files that are written whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from training.command.errors import UserError, refuse_windows

LOCK = ".lock"


def aside_of(path: Path) -> Path:
    """Return where a file or folder is written before it is renamed; its ending stays."""
    return path.with_name(f"writing-{path.name}")


def move(aside: Path, path: Path) -> Path:
    """Give a file or folder that was written aside its name, all of it on the disk before.

    A rename may reach the disk before the content does: after a power cut files would be empty.
    """
    for each in [*aside.rglob("*"), aside]:
        sync(each)
    aside.replace(path)
    sync(path.parent)
    return path


def sync(path: Path) -> None:
    """Wait until a file, or the names of a folder's files, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_space(folder: Path, size: int) -> None:
    """Raise the OSError of a full disk where a file of so many bytes has no room in a folder.

    HDF5 ends the process by a signal where it runs out of space.
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
            if hasattr(os, "posix_fallocate"):  # macOS has not
                os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(folder)) from None


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Give an OSError without a file name, such as that of a full disk, this path."""
    try:
        yield
    except OSError as error:
        if error.errno and error.filename is None:  # without a number it is no error of a system
            error.filename = str(path)
        raise


@contextmanager
def replacing(path: Path, aside: Path | None = None) -> Iterator[Path]:
    """Write a file or folder whole or not at all.

    Yields:
        The place to write to, with nothing there: `aside`, or `aside_of(path)`. A file there
        replaces no folder: OSError.
    """
    aside = aside or aside_of(path)
    remove(aside)
    try:
        with naming(path):
            yield aside
        if path.is_dir() and aside.is_dir():
            shutil.rmtree(path)
        move(aside, path)
    finally:
        remove(aside)


def remove(path: Path) -> None:
    """Remove a file or folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    with replacing(path) as aside:
        aside.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON; a ValueError where a number is not finite."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Read JSON; a UserError where the file cannot be read as such."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot read {path}: {reason}") from None


@contextmanager
def locked_folder(folder: Path, name: Path) -> Iterator[list[Path]]:
    """Make a folder, and keep other processes out; yield the folders that were missing.

    The lock, a file `.lock`, is the operating system's and ends with the process, however that
    ends. Raises UserError, which says `name`, where the folder cannot be made or written to, or
    another process has it.
    """
    refuse_windows()
    import fcntl  # which Windows has not

    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("a+", encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write to {name}: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "another one"
            raise UserError(f"{name} is in use by process {owner}") from None
        file.truncate(0)
        with suppress(OSError):  # a full disk has no room for the number
            os.write(file.fileno(), f"{os.getpid()}\n".encode())
        with naming(name):
            yield made


@contextmanager
def written_aside(folder: Path) -> Iterator[Path]:
    """Write a folder whole or not at all: yield another beside it, which takes its name at the end.

    Files that a killed process has left there are removed first. Raises UserError where the folder
    holds anything, cannot be made, or another process writes it.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is not empty: choose another place")
    aside = aside_of(folder)
    with locked_folder(aside, folder) as made:
        try:
            for left in aside.iterdir():
                if left.name != LOCK:
                    remove(left)
            yield aside
            (aside / LOCK).unlink()
            move(aside, folder)
        except BaseException:
            shutil.rmtree(aside)
            remove_empty(made[1:])
            raise


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove folders as long as they are empty."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()
