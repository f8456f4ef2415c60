"""Files, read a block of lines at a time.

A line ends with a line feed, or with a carriage return and a line feed. No other character ends a
line. The quotes of spreadsheets, which may enclose tabs and line ends, are removed. Any file may be
compressed with gzip if its name ends in `.gz`, or with Zstandard if it ends in `.zst`.
"""

from __future__ import annotations

import functools
import gzip
import io
import itertools
import stat
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from training.data.columns import Form, form_of, unquoted_rows
from training.data.read._specs import CorpusError, Spec
from training.data.rules import NO_TEXT, encoding_hint

BLOCK_BYTES = 4 << 20
LINE_BYTES = 1 << 16  # a longer line is not a sentence


class Block(NamedTuple):
    """Consecutive lines of a SPEC."""

    spec: Spec  # the SPEC that names the files
    first: int  # number of the first line, from 1
    data: bytes  # the lines, each with its line feed; lines of aligned files are joined by a tab
    form: Form = Form()  # how the file writes its columns

    @property
    def lines(self) -> int:
        """The number of lines."""
        return self.data.count(b"\n")


def read_blocks(spec: Spec, size: int = BLOCK_BYTES, form: Form | None = None) -> Iterator[Block]:
    """Yield the lines of a SPEC's files, in blocks of about `size` bytes.

    `form` is how the file writes its columns. None finds the form from the file.

    Raises:
        CorpusError: a file cannot be read, or aligned files differ in their number of lines.
    """
    paths, first = spec.paths, 1
    with ExitStack() as stack:
        files = [_checked(stack.enter_context(open_data(path)), path) for path in paths]
        form = form or (_form(paths[0]) if len(files) == 1 else Form())
        if form.quoted:
            cut = _grouped(unquoted(files[0], paths[0]), size)
        elif len(files) == 1:
            cut = _cut(files[0], size)
        else:
            cut = _grouped(_aligned(files, paths), size)
        for data in cut:
            yield Block(spec, first, data, form)
            first += data.count(b"\n")


@contextmanager
def open_data(path: Path) -> Iterator[io.BufferedReader]:
    """Open a file for reading; decompress it if its name ends in `.gz` or `.zst`.

    Raises CorpusError for a pipe, which can be read only once, if the file cannot be opened, or if
    reading fails inside the `with` block.
    """
    path = path.expanduser()
    damaged: tuple[type[Exception], ...] = (OSError, EOFError, zlib.error)
    if path.suffix == ".zst":
        damaged = (*damaged, _zstandard(path).ZstdError)
    try:
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise CorpusError(
                f"{path} is a pipe, but the trainer reads data several times. Save it first: "
                "COMMAND > my.tsv"
            )
        with ExitStack() as stack:
            file: Any = stack.enter_context(path.open("rb"))
            if path.suffix == ".gz":
                file = stack.enter_context(gzip.GzipFile(fileobj=file))
            elif path.suffix == ".zst":
                unpacker = _zstandard(path).ZstdDecompressor()
                file = stack.enter_context(unpacker.stream_reader(file, read_across_frames=True))
            yield stack.enter_context(io.BufferedReader(file, 1 << 20))
    except damaged as error:
        reason = getattr(error, "strerror", None) or error
        if isinstance(error, gzip.BadGzipFile):
            reason = f"{reason}: rename it where it is not packed"
        raise CorpusError(f"Cannot read {path}: {reason}") from None


def _zstandard(path: Path) -> Any:
    try:
        import zstandard
    except ImportError:
        reason = "zstandard is not installed: pip install zstandard"
        raise CorpusError(f"Cannot read {path}: {reason}") from None
    return zstandard


def read_text(path: Path) -> str:
    """Return the text of a file, decompressed as by `open_data`.

    Raises CorpusError if the file cannot be read, is not UTF-8, or is empty.
    """
    with open_data(path) as file:
        text = decoded(file.read(), path)
    if not text.strip():
        raise CorpusError(f"{path} is empty")
    return text


def decoded(data: bytes, name: str | Path) -> str:
    """Return the text of bytes. Raises CorpusError, with the file's name, if it is not UTF-8."""
    wrong = 0 if data.startswith(tuple(NO_TEXT)) else data.find(b"\0", 0, 4096)
    if wrong < 0:
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            wrong = error.start
    line = data.count(b"\n", 0, wrong) + 1
    raise CorpusError(f"{name}, line {line} is not UTF-8 text{encoding_hint(data)}")


def _checked(file: io.BufferedReader, path: Path) -> io.BufferedReader:
    """Return the file; raise CorpusError if its start is not UTF-8 or its lines end in CR alone."""
    start = file.peek(4096)[:4096]
    if start.startswith(tuple(NO_TEXT)) or b"\0" in start:
        raise CorpusError(f"{path}, line 1 is not UTF-8 text{encoding_hint(start)}")
    if b"\n" not in start and b"\r" in start.rstrip():
        raise CorpusError(
            f"{path} has the line ends of old Macs (CR). Convert it: "
            f"tr '\\r' '\\n' < {path} > new{path.suffix}"
        )
    return file


def _form(path: Path) -> Form:
    """Return the form of a file's columns, cached until the file changes."""
    return _form_of(path, path.stat().st_size, path.stat().st_mtime_ns)


@functools.lru_cache(64)
def _form_of(path: Path, *_: int) -> Form:
    with open_data(path) as file:
        return form_of(_cut(_checked(file, path), BLOCK_BYTES), str(path))


def _cut(file: io.BufferedReader, size: int) -> Iterator[bytes]:
    """Yield blocks of about `size` bytes that end with a whole line; a line too long is cut."""
    while data := file.read(size):
        if not data.endswith(b"\n"):
            data += next(_lines(file), b"\n")
        yield data


def _grouped(lines: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Yield lines, joined into groups of about `size` bytes."""
    group, count = list[bytes](), 0
    for line in lines:
        group.append(line)
        count += len(line)
        if count >= size:
            yield b"".join(group)
            group, count = [], 0
    if group:
        yield b"".join(group)


def _aligned(files: list[io.BufferedReader], paths: Sequence[Path]) -> Iterator[bytes]:
    """Yield the lines of aligned files, joined by a tab; raise CorpusError if a file is shorter."""
    counts = [0] * len(files)
    for pair in itertools.zip_longest(*map(_lines, files)):
        counts = [count + (line is not None) for count, line in zip(counts, pair, strict=True)]
        if None not in pair:
            yield b"\t".join(line[:-1].replace(b"\t", b" ") for line in pair) + b"\n"
    if len(set(counts)) > 1:
        raise CorpusError(
            f"{paths[0]} has {counts[0]} lines, but {paths[1]} has {counts[1]}. Line n of "
            "both files must belong together"
        )


def unquoted(file: io.BufferedIOBase, path: Path, delimiter: str = "\t") -> Iterator[bytes]:
    """Yield the unquoted rows of a spreadsheet, with tabs between columns.

    Each row ends with as many line feeds as it has in the file, so that line numbers stay correct.
    """
    lines = (line.decode(errors="surrogateescape").replace("\ufeff", "") for line in _lines(file))
    try:
        for row in unquoted_rows(lines, delimiter):
            yield row.encode(errors="surrogateescape")
    except ValueError as error:
        raise CorpusError(f"{path}, {error}") from None


def _lines(file: io.BufferedIOBase) -> Iterator[bytes]:
    """Yield lines with their line feeds; a line that is too long is cut after LINE_BYTES."""
    while line := file.readline(LINE_BYTES):
        if not line.endswith(b"\n"):
            if len(line) == LINE_BYTES:
                while (more := file.readline(LINE_BYTES)) and not more.endswith(b"\n"):
                    pass
            line += b"\n"
        yield line
