"""Raw lines of files of any size, a block at a time: plain, `.gz`, `.zst`, or standard input."""

from __future__ import annotations

import io
import itertools
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from training.data import corpus
from training.data.pair_files import CorpusError, opened

LONGEST = 1 << 16  # bytes of a line; of a longer one these are read, and one more
_BLOCK = 16 << 20  # bytes
_MARK = b"\xef\xbb\xbf"  # with which some files say that they are UTF-8


@dataclass(frozen=True)
class Block:
    """Some lines that follow one another.

    Attributes:
        number: of the block, from 0.
        first: number of its first line, from 1.
        columns: its lines; of line-aligned files those of each.
        several: whether all columns of a line after the first are targets, not the second alone.
    """

    number: int
    first: int
    columns: tuple[bytes, ...]
    several: bool = False


def blocks(spec: str, size: int = _BLOCK, limit: int = 0, seed: int = 0) -> Iterator[Block]:
    """Yield the lines of a SPEC; a named corpus is read whole first.

    Args:
        spec: see `training.data.corpus`; `tsv:-` is standard input.
        size: bytes in a block, about.
        limit: most lines of a named corpus, see `corpus.load`; 0 for all.
        seed: of a named corpus, likewise.

    Raises:
        CorpusError: if it cannot be read, or two files have not as many lines.
    """
    form, _, paths = spec.partition(":")
    if form == "parallel":
        rows = _aligned(*corpus.parallel(paths))
    elif form in ("tsv", "multiref"):
        rows = ((line,) for line in _lines(paths))
    else:
        split = corpus.load(spec, "train", limit=limit or None, seed=seed)
        rows = (
            ("\t".join([source, *references]).encode() + b"\n",)
            for source, references in zip(split.sources, split.references, strict=True)
        )
    several = form not in ("parallel", "tsv")
    number, first, kept, held = 0, 1, list[tuple[bytes, ...]](), 0
    for row in rows:
        kept.append(row)
        held += sum(map(len, row))
        if held >= size:
            yield _block(number, first, kept, several)
            number, first, kept, held = number + 1, first + len(kept), [], 0
    if kept:
        yield _block(number, first, kept, several)


def _block(number: int, first: int, rows: list[tuple[bytes, ...]], several: bool) -> Block:
    columns = tuple(b"".join(column) for column in zip(*rows, strict=True))
    return Block(number, first, columns, several)


def _aligned(source: str, target: str) -> Iterator[tuple[bytes, ...]]:
    sides = _lines(source), _lines(target)
    counts = [0, 0]
    for row in itertools.zip_longest(*sides):
        counts = [count + (line is not None) for count, line in zip(counts, row, strict=True)]
        if None not in row:
            yield cast(tuple[bytes, ...], row)
    if counts[0] != counts[1]:
        raise CorpusError(
            f"Expected as many lines in {source} and {target}. "
            f"Received: {counts[0]} and {counts[1]}"
        )


def _lines(path: str) -> Iterator[bytes]:
    """Yield lines with their ends; one that is too long is cut after LONGEST bytes."""
    with _open(path) as file:
        if file.peek(len(_MARK)).startswith(_MARK):
            file.read(len(_MARK))
        while line := file.readline(LONGEST):
            if len(line) == LONGEST and not line.endswith(b"\n"):
                while (more := file.readline(LONGEST)) and not more.endswith(b"\n"):
                    pass
                line += b"\n"
            elif not line.endswith(b"\n"):
                line += b"\n"
            yield line


def _open(path: str) -> AbstractContextManager[io.BufferedReader]:
    if path == corpus.STDIN:
        return nullcontext(cast(io.BufferedReader, sys.stdin.buffer))
    return opened(Path(path))
