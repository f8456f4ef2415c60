"""Input files, and the places of their outputs.

An input is a file of lines or rows, or files of a folder, such as images: `FOLDER/*.png` stands for
those that match.
"""

from __future__ import annotations

import codecs
import glob
import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from serving.client.file_kinds import kind_of_name
from training.command.errors import UserError

ENDINGS = (".jsonl", ".json", ".txt", ".csv")


class InputError(UserError):
    """Files that cannot be read as asked."""


def find(patterns: Sequence[str], output: Path) -> list[Path]:
    """Return the inputs that the patterns name, each once.

    Raises:
        InputError: if a pattern names nothing, two inputs would have one output, or they are of
            several kinds.
    """
    by_output: dict[Path, Path] = {}
    for pattern in patterns:
        paths = [Path(path) for path in sorted(glob.glob(pattern, recursive=True))]
        inputs = list(dict.fromkeys(_inputs(paths, Path(pattern).name)))
        if not inputs:
            raise InputError(f"no file matches {pattern}")
        for path in inputs:
            other = by_output.setdefault(target(path, output), path)
            if other != path:
                raise InputError(f"{other} and {path} would have the same output: rename one")
    if inside := [path for path in by_output.values() if path.is_relative_to(output.resolve())]:
        raise InputError(f"{inside[0]} is in the output: choose another --output")
    kinds = {kind_of(path): path for path in by_output.values()}
    if len(kinds) > 1:
        one, other = list(kinds.values())[:2]
        raise InputError(f"expected inputs of one kind. Received: {one} and {other}")
    return list(by_output.values())


def kind_of(path: Path) -> str:
    """Return what an input holds: `text`, `events`, or the name of a kind of files."""
    if is_folder(path):
        return kind_of_name(files_of(path)[0].name).name  # type: ignore[union-attr]
    return "events" if path.name.removesuffix(".gz").endswith(".csv") else "text"


def is_folder(path: Path) -> bool:
    """Whether an input stands for files of a folder."""
    is_pattern = glob.has_magic(path.name) and not path.is_file()
    return is_pattern or kind_of_name(path.name) is not None


def files_of(path: Path) -> list[Path]:
    """Return the files that an input stands for, in the order of their names."""
    every = [path] if path.is_file() else path.parent.glob(path.name)
    return sorted(file for file in every if kind_of_name(file.name) and file.is_file())


def _inputs(paths: Sequence[Path], pattern: str) -> Iterator[Path]:
    """Yield the files; for those of a folder the folder with the pattern."""
    for path in paths:
        resolved = path.resolve()
        if path.is_dir():
            if files_of(resolved / "*"):
                yield resolved / "*"
        elif kind_of_name(path.name) and glob.has_magic(pattern):
            yield resolved.parent / pattern
        elif path.is_file():
            yield resolved


def target(path: Path, output: Path) -> Path:
    """Return the output of an input: its name, or its folder's, as JSON lines."""
    if is_folder(path):
        return output / f"{path.parent.name}.jsonl"
    name = path.name.removesuffix(".gz")
    ending = next((e for e in ENDINGS if name.endswith(e)), "")
    return output / f"{name.removesuffix(ending)}.jsonl{'.gz' if path.suffix == '.gz' else ''}"


def opened(path: Path, mode: str, compressed: bool) -> IO[bytes]:
    """Open a file of bytes."""
    return gzip.open(path, mode, compresslevel=5) if compressed else path.open(mode)  # type: ignore


def lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a text file, .gz or not, without their ends and a byte-order mark.

    Raises:
        InputError: if the file is not whole.
    """
    mark = codecs.BOM_UTF8
    with opened(path, "rb", path.suffix == ".gz") as file:
        try:
            for line in file:
                yield line.removeprefix(mark).rstrip(b"\r\n")
                mark = b""
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InputError(f"{path} cannot be read: {error}") from None


def is_json(path: Path) -> bool:
    """Whether a file's name says that its lines are JSON objects."""
    return path.name.removesuffix(".gz").endswith((".jsonl", ".json"))


def text_of(line: bytes, field: str | None, longest: int) -> tuple[str, dict[str, Any]]:
    """Return the text of a line and, where a `field` of a JSON object has it, that object.

    Raises:
        ValueError: says why the line is bad, for instance more than `longest` bytes.
    """
    record: dict[str, Any] = {}
    try:
        text = line.decode("utf-8")
        if field is not None:
            record = json.loads(text)
            if not isinstance(record, dict) or not isinstance(record.get(field), str):
                raise ValueError(f"not an object with a text {field!r}")
            text = record[field]
        size = len(text.encode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason} at byte {error.start}") from None
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair") from None
    except (json.JSONDecodeError, RecursionError):
        raise ValueError("not JSON") from None
    if size > longest:
        raise ValueError(f"more than {longest:,} bytes")
    return text, record
