"""Files that are written whole or not at all."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from training.command.errors import UserError


def aside_of(path: Path) -> Path:
    """Return where a file or folder is written before it is renamed; its ending stays."""
    return path.with_name(f"writing-{path.name}")


@contextmanager
def replacing(path: Path, aside: Path | None = None) -> Iterator[Path]:
    """Write a file or folder whole or not at all.

    Yields:
        The place to write to, with nothing there: `aside`, or `aside_of(path)`.
    """
    aside = aside or aside_of(path)
    remove(aside)
    try:
        yield aside
        if path.is_dir():
            shutil.rmtree(path)
        aside.replace(path)
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
def written_aside(folder: Path) -> Iterator[Path]:
    """Write a folder whole or not at all: yield another beside it, which takes its name at the end.

    What a process that was killed has left there is removed first.

    Raises:
        UserError: if the folder holds anything, cannot be made, or another process writes it.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is not empty: choose another place")
    aside = aside_of(folder)
    made = [path for path in (aside, *aside.parents) if not path.exists()]
    try:
        aside.mkdir(parents=True, exist_ok=True)
        lock = (aside / ".lock").open("a")
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{folder} is being written by another process") from None
        try:
            for left in aside.iterdir():
                if left.is_dir():
                    shutil.rmtree(left)
                elif left.name != ".lock":
                    left.unlink()
            yield aside
            (aside / ".lock").unlink()
            aside.replace(folder)
        except BaseException:
            shutil.rmtree(aside)
            for path in made[1:]:
                with suppress(OSError):  # something else has been put there
                    path.rmdir()
            raise
