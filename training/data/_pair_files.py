"""The sentences of a split, and readers of files that may be compressed.

Any file may be compressed with gzip if its name ends in `.gz`, or with Zstandard if it ends in
`.zst`.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import random
import stat
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from training.command.errors import UserError
from training.data.rules import NO_TEXT, encoding_hint

Links = frozenset[tuple[int, int]]


class CorpusError(UserError):
    """A corpus that does not exist or cannot be read. The message is one line."""


@dataclass(frozen=True)
class Split:
    """Sentences, or images, of one split of a corpus, with their reference translations.

    Texts are NFC with single spaces. Only some corpora have gold words and links. Both belong to
    the first reference of each source.
    """

    sources: list[Any]  # source sentences; for images, the files, as bytes or as paths
    references: list[list[str]]  # one or more translations of each source
    source_words: Sequence[list[str]] = ()  # words of each source
    target_words: Sequence[list[str]] = ()  # words of each first reference
    # links `(source word, target word)` of each sentence that an alignment must have
    sure: Sequence[Links] = ()
    possible: Sequence[Links] = ()  # links that an alignment may have, sure links included
    # for images, the box of each character in each first reference: left, top, right, bottom, as
    # fractions of the image's size
    boxes: Sequence[list[tuple[float, float, float, float]]] = ()
    unusable: int = 0  # lines of the files without a pair

    def pairs(self) -> list[tuple[Any, str]]:
        """Return the pairs of each source with each of its references."""
        return [
            (source, reference)
            for source, references in zip(self.sources, self.references, strict=True)
            for reference in references
        ]

    def select(self, indices: Sequence[int]) -> Split:
        """Return a split of the sentences at these positions."""
        chosen: dict[str, Any] = {
            name: [values[i] for i in indices]
            for name, values in vars(self).items()
            if isinstance(values, list)
        }
        return replace(self, **chosen)


def chosen(count: int, limit: int | None, seed: int = 0) -> Sequence[int]:
    """Return at most `limit` of `count` positions, drawn at random, in order; 0 or None for all."""
    if not limit or limit >= count:
        return range(count)
    return sorted(random.Random(seed).sample(range(count), limit))


def sample(split: Split, limit: int | None, seed: int = 0) -> Split:
    """Return at most `limit` sentences, drawn at random, in order; None for all."""
    if limit is None or limit >= len(split.sources):
        return split
    return split.select(chosen(len(split.sources), limit, seed))


def merge_sources(split: Split) -> Split:
    """Return a split with one sentence per source, with the distinct references of its lines."""
    first: dict[str, int] = {}
    references: dict[str, dict[str, None]] = {}
    for i, source in enumerate(split.sources):
        first.setdefault(source, i)
        references.setdefault(source, {}).update(dict.fromkeys(split.references[i]))
    merged = split.select(list(first.values()))
    return replace(merged, references=[list(texts) for texts in references.values()])


def number_of(text: str) -> int:
    """Return the SHA-1 of a text as a whole number, which keeps an example in its split."""
    return int.from_bytes(hashlib.sha1(text.encode()).digest(), "big")


def digest_of(content: bytes) -> int:
    """Return a number of 64 bits for the content of a source, to find it in other data."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big")


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
